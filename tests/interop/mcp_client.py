"""Drives a server with the official Python client: `mcp_client.py URL [TOOL PREFIX [MODE]]`.

The server has the tools, prompts and resources of `ts_server.mjs`, directly or behind a gateway that
puts PREFIX in front of tool and prompt names.
"""

import sys

import anyio
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from peer import say, text_of

asked: list[str] = []
changed = anyio.Event()


async def hear(message: object) -> None:
    """What a session tells without being asked."""
    if type(message).__name__ == "ToolListChangedNotification":
        changed.set()


async def answer(context: object, params: ElicitRequestParams) -> ElicitResult:
    asked.append(params.message)
    return ElicitResult(action="accept", content={"name": "Ada"})


async def lists(client: Client) -> None:
    say("connected", version=client.protocol_version, tools=client.server_capabilities.tools is not None)
    say("tools", names=[tool.name for tool in (await client.list_tools()).tools])
    say("prompts", names=[prompt.name for prompt in (await client.list_prompts()).prompts])
    say("resources", uris=[resource.uri for resource in (await client.list_resources()).resources])


async def calls(client: Client, prefix: str) -> None:
    say("plain", text=text_of(await client.call_tool(f"{prefix}test_simple_text", {})))

    seen: list[float] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        seen.append(value)

    result = await client.call_tool(
        f"{prefix}test_tool_with_progress", {}, progress_callback=progress
    )
    say("progress", values=seen, error=result.is_error)

    result = await client.call_tool(f"{prefix}test_input_required_result_elicitation", {})
    say("asked", text=text_of(result), messages=asked)

    arguments = {"arg1": "one", "arg2": "two"}
    prompt = await client.get_prompt(f"{prefix}test_prompt_with_arguments", arguments)
    say("prompt", text=prompt.messages[0].content.text)

    resource = await client.read_resource("test://static-text")
    say("resource", text=resource.contents[0].text)


async def listens(client: Client, prefix: str) -> None:
    if client.protocol_version < "2026-07-28":
        await client.call_tool(f"{prefix}test_trigger_tool_change", {})
        with anyio.fail_after(15):
            await changed.wait()
        return say("listened", event="ToolsListChanged")
    async with client.listen(tools_list_changed=True) as changes:
        await client.call_tool(f"{prefix}test_trigger_tool_change", {})
        async for event in changes:
            say("listened", event=type(event).__name__)
            return


async def main() -> None:
    url, prefix, mode = (sys.argv[1:] + ["", "auto"][len(sys.argv) - 2 :])[:3]
    with anyio.fail_after(60):
        async with Client(
            url, elicitation_callback=answer, message_handler=hear, mode=mode
        ) as client:
            await lists(client)
            await calls(client, prefix)
            await listens(client, prefix)
    say("done")


if __name__ == "__main__":
    anyio.run(main)

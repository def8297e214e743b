"""Drives a server with the Python SDK 1.x, which opens a session of 2025-11-25.

`session_client.py URL [TOOL PREFIX [sse]]`, with `sse` over HTTP+SSE; the server has the tools, prompts and resources of
`ts_server.mjs`, directly or behind a gateway that puts PREFIX in front of tool and prompt names.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from peer import say, text_of

asked: list[str] = []
changed = anyio.Event()


async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    asked.append(params.message)
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def hear(message: object) -> None:
    told = getattr(message, "root", None)
    if isinstance(told, types.ToolListChangedNotification):
        changed.set()


async def lists(session: ClientSession) -> None:
    opened = await session.initialize()
    say("connected", version=opened.protocolVersion, tools=opened.capabilities.tools is not None)
    say("tools", names=[tool.name for tool in (await session.list_tools()).tools])
    say("prompts", names=[prompt.name for prompt in (await session.list_prompts()).prompts])
    resources = (await session.list_resources()).resources
    say("resources", uris=[str(resource.uri) for resource in resources])


async def calls(session: ClientSession, prefix: str) -> None:
    say("plain", text=text_of(await session.call_tool(f"{prefix}test_simple_text", {})))

    seen: list[float] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        seen.append(value)

    name = f"{prefix}test_tool_with_progress"
    result = await session.call_tool(name, {}, progress_callback=progress)
    say("progress", values=seen, error=result.isError)

    result = await session.call_tool(f"{prefix}test_input_required_result_elicitation", {})
    say("asked", text=text_of(result), messages=asked)

    arguments = {"arg1": "one", "arg2": "two"}
    prompt = await session.get_prompt(f"{prefix}test_prompt_with_arguments", arguments)
    say("prompt", text=prompt.messages[0].content.text)

    resource = await session.read_resource("test://static-text")
    say("resource", text=resource.contents[0].text)


@asynccontextmanager
async def connect(url: str, transport: str) -> AsyncIterator[tuple]:
    if transport == "sse":
        async with sse_client(url) as streams:
            yield streams
    else:
        async with streamable_http_client(url) as (read, write, _):
            yield read, write


async def main() -> None:
    url, prefix, transport = (sys.argv[1:] + ["", ""])[:3]
    with anyio.fail_after(60):
        async with (
            connect(url, transport) as (read, write),
            ClientSession(read, write, elicitation_callback=answer, message_handler=hear) as session,
        ):
            await lists(session)
            await calls(session, prefix)
            await session.call_tool(f"{prefix}test_trigger_tool_change", {})
            with anyio.fail_after(15):
                await changed.wait()
            say("listened", event="ToolsListChanged")
    say("done")


if __name__ == "__main__":
    anyio.run(main)

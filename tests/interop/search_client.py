"""Calls tools through search mode with the Python SDK 1.x, in a session: `search_client.py URL CALLS [direct]`.

CALLS is JSON of `[{ name, arguments }]`. Each is described first, and reported as a step of its name; with
`direct` it is called itself, and its description is what the list says.
"""

import json
import sys

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

from peer import say, text_of


DIRECT = sys.argv[3:] == ["direct"]


async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    content = {"name": "Ada", "interpretation": "technical"}
    return types.ElicitResult(action="accept", content=content)


async def sample(
    context: object, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="sampled text")
    return types.CreateMessageResult(role="assistant", model="none", content=content)


async def roots(context: object) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///roots")])


async def describe(session: ClientSession, name: str) -> str | None:
    if DIRECT:
        tools = (await session.list_tools()).tools
        return next((tool.name for tool in tools if tool.name == name), None)
    described = await session.call_tool("describe_tool", {"name": name})
    return (described.structuredContent or {}).get("name")


async def call(session: ClientSession, name: str, arguments: dict) -> None:
    described = await describe(session, name)
    steps: list[float] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        steps.append(value)

    if DIRECT:
        wanted = name, arguments
    else:
        wanted = "call_tool", {"name": name, "arguments": arguments}
    result = await session.call_tool(*wanted, progress_callback=progress)
    say(
        name,
        described=described,
        text=text_of(result),
        kinds=[block.type for block in result.content],
        structured=result.structuredContent,
        error=result.isError,
        progress=steps,
    )


async def main() -> None:
    url, calls = sys.argv[1:3]
    with anyio.fail_after(100):
        async with (
            streamable_http_client(url) as (read, write, _),
            ClientSession(
                read,
                write,
                elicitation_callback=answer,
                sampling_callback=sample,
                list_roots_callback=roots,
            ) as session,
        ):
            await session.initialize()
            say("tools", names=[tool.name for tool in (await session.list_tools()).tools])
            for one in json.loads(calls):
                await call(session, one["name"], one["arguments"])
    say("done")


if __name__ == "__main__":
    anyio.run(main)

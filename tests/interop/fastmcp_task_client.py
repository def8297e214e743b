"""Drives a task server with the FastMCP client: `fastmcp_task_client.py URL [TOOL PREFIX [search]]`.

This client sends no `Mcp-Name` on `tasks/*`. It runs against any server that has the tools of
`fastmcp_task_server.py`, directly or behind a gateway that puts PREFIX in front of their names. With
`search` each of them is called through `call_tool`.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp_tasks import call_tool_task

from peer import say, text_of

PREFIX = (sys.argv[2:] or [""])[0]
SEARCHES = sys.argv[3:] == ["search"]

asked: list[str] = []


def through(tool: str, arguments: dict) -> tuple[str, dict]:
    """What to call, and with what, so that the server's tool gets these arguments."""
    if SEARCHES:
        return "call_tool", {"name": PREFIX + tool, "arguments": arguments}
    return PREFIX + tool, arguments


async def answer(message: str, response_type: type, params: object, context: object) -> ElicitResult:
    asked.append(message)
    return ElicitResult(action="accept", content={"confirm": True})


async def drive(client: Client) -> None:
    say(
        "connected",
        version=client.session.protocol_version,
        extensions=client.session.server_capabilities.extensions,
    )
    tools = await client.list_tools()
    say("tools", names=[tool.name for tool in tools])

    say("plain", text=text_of(await client.call_tool(*through("greet", {"name": "Ada"}))))

    slow = {"seconds": 0.3, "label": "transparent"}
    result = await client.call_tool(*through("slow_compute", slow))
    say("transparent", text=text_of(result))

    task = await call_tool_task(
        client, *through("slow_compute", {"seconds": 0.3, "label": "handle"})
    )
    created = task.create_result
    say("created", id=task.task_id, status=created.status)
    say("settled", text=text_of(await task.result()), status=(await task.status()).status)

    failed = await client.call_tool(*through("failing_job", {}), raise_on_error=False)
    say("failed", error=failed.is_error, text=text_of(failed))

    confirmed = await client.call_tool(*through("confirm_delete", {"filename": "a.txt"}))
    say("asked", text=text_of(confirmed), messages=asked)

    doomed = await call_tool_task(
        client, *through("slow_compute", {"seconds": 60, "label": "never"})
    )
    await doomed.cancel()
    say("cancelled", status=(await doomed.wait(timeout=10)).status)


async def main() -> None:
    async with Client(sys.argv[1], elicitation_handler=answer) as client:
        await drive(client)
    say("done")


if __name__ == "__main__":
    asyncio.run(main())

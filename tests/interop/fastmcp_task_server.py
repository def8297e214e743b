"""A FastMCP server with the tasks extension; the same tools as the demo server `demo-tasks`.

Prints its URL as the step `listening` and serves until its standard input ends.
"""

import asyncio
from datetime import timedelta

import mcp_types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

from peer import end_with_stdin, listener, say, url_of

POLL = timedelta(milliseconds=50)
OPTIONAL = TaskConfig(mode="optional", poll_interval=POLL)
REQUIRED = TaskConfig(mode="required", poll_interval=POLL)

mcp = FastMCP("fastmcp-tasks-peer", version="4.1.4")
mcp.add_extension(TasksExtension())


@mcp.tool
async def greet(name: str) -> str:
    """Greets at once, never as a task."""
    return f"Hello, {name}!"


@mcp.tool(task=OPTIONAL)
async def slow_compute(seconds: float, label: str = "work") -> str:
    """Takes its time; a task for callers that know tasks."""
    await asyncio.sleep(seconds)
    return f"{label}: computed for {seconds:g} s"


@mcp.tool(task=REQUIRED)
async def failing_job() -> str:
    """Only runs as a task, and ends in a tool error."""
    raise ToolError("the job failed as asked")


@mcp.tool(task=OPTIONAL)
async def confirm_delete(filename: str, ctx: Context) -> str | mcp_types.InputRequiredResult:
    """Asks once before it says that it deleted the file."""
    answer = (ctx.input_responses or {}).get("confirm")
    if answer is None:
        return mcp_types.InputRequiredResult(
            input_requests={
                "confirm": mcp_types.ElicitRequest(
                    params=mcp_types.ElicitRequestFormParams(
                        message=f"Delete {filename}?",
                        requested_schema={
                            "type": "object",
                            "properties": {"confirm": {"type": "boolean"}},
                            "required": ["confirm"],
                        },
                    )
                )
            }
        )
    agreed = answer.action == "accept" and (answer.content or {}).get("confirm") is True
    return f"deleted {filename}" if agreed else f"kept {filename}"


async def main() -> None:
    sock = listener()
    say("listening", url=url_of(sock))
    await mcp.run_http_async(show_banner=False, log_level="warning", path="/mcp", sockets=[sock])


if __name__ == "__main__":
    end_with_stdin()
    asyncio.run(main())

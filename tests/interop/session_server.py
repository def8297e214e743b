"""A server of the Python SDK 1.x, sessions and all: over HTTP, or `--stdio` over pipes.

Its tools, prompts and resources are those of `ts_server.mjs`.
"""

import sys
from functools import partial

import anyio
import uvicorn
from mcp.server import NotificationOptions
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

from peer import end_with_stdin, listener, say, url_of

server = FastMCP("python-session-peer")
# It declares no changes of lists unless it is told to.
inner = server._mcp_server
inner.create_initialization_options = partial(
    inner.create_initialization_options, NotificationOptions(tools_changed=True)
)


class Name(BaseModel):
    name: str


@server.tool()
async def test_simple_text() -> str:
    """Answers with a fixed text."""
    return "This is a simple text response for testing."


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress three times."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
    return "progress reported"


@server.tool()
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name before it greets."""
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name if answer.action == 'accept' else 'nobody'}!"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Adds a tool and announces that."""
    server.add_tool(test_simple_text, name=f"added_{len(await server.list_tools())}")
    await ctx.session.send_tool_list_changed()
    return "announced"


@server.prompt()
def test_simple_prompt() -> str:
    """A fixed prompt."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Repeats its arguments."""
    return f"arg1='{arg1}', arg2='{arg2}'"


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A fixed text."""
    return "static text for testing"


async def main() -> None:
    sock = listener()
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    say("listening", url=url_of(sock))
    end_with_stdin()
    await uvicorn.Server(config).serve(sockets=[sock])


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        server.run("stdio")
    else:
        anyio.run(main)

"""Reads every list of a server with the Python SDK 1.x: `session_lists.py URL`."""

import sys

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from peer import say


async def main() -> None:
    with anyio.fail_after(60):
        async with (
            streamable_http_client(sys.argv[1]) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            say("tools", names=[tool.name for tool in (await session.list_tools()).tools])
            say("prompts", names=[prompt.name for prompt in (await session.list_prompts()).prompts])
            resources = (await session.list_resources()).resources
            say("resources", names=[str(resource.uri) for resource in resources])
            templates = (await session.list_resource_templates()).resourceTemplates
            say("templates", names=[template.uriTemplate for template in templates])
    say("done")


anyio.run(main)

"""Reads every list of a server with the Python SDK 2.x: `lists.py URL MODE`."""

import sys

import anyio
from mcp import Client

from peer import say


async def main() -> None:
    url, mode = sys.argv[1:]
    with anyio.fail_after(60):
        async with Client(url, mode=mode) as client:
            say("tools", names=[tool.name for tool in (await client.list_tools()).tools])
            say("prompts", names=[prompt.name for prompt in (await client.list_prompts()).prompts])
            resources = (await client.list_resources()).resources
            say("resources", names=[resource.uri for resource in resources])
            templates = (await client.list_resource_templates()).resource_templates
            say("templates", names=[template.uri_template for template in templates])
    say("done")


anyio.run(main)

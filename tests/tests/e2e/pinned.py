"""A server of the session era over standard streams whose tools are what a file says.

Each call answers with the arguments that it got, the value of `token` left out.
"""

import json
import sys


def tools(_):
    with open(sys.argv[1]) as file:
        return {"tools": json.load(file)}


def call(params):
    arguments = params.get("arguments", {})
    if "token" in arguments:
        arguments["token"] = len(arguments["token"])
    text = json.dumps({"tool": params["name"], "arguments": arguments})
    return {"content": [{"type": "text", "text": text}]}


def initialize(_):
    return {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "pinned", "version": "1"},
    }


METHODS = {"initialize": initialize, "ping": lambda _: {}, "tools/list": tools, "tools/call": call}

while line := sys.stdin.readline():
    request = json.loads(line)
    if "method" not in request or "id" not in request:
        continue
    answer = {"error": {"code": -32601, "message": "method not found"}}
    if request["method"] in METHODS:
        answer = {"result": METHODS[request["method"]](request.get("params", {}))}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)

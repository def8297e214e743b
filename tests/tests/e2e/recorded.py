#!/usr/bin/env python3
"""Stands in for `npx` and `uvx`: starts a server of the session era that has the tools which were
recorded of the package that is to be run.
"""

import json
import pathlib
import sys

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "fixtures/catalogue"


def tools(packages):
    for path in sorted(RECORDED.glob("*.json")):
        server = json.loads(path.read_text())
        if isinstance(server, dict) and server.get("package") in packages:
            return server["tools"]
    sys.exit(f"nothing is recorded of {packages}")


TOOLS = tools(sys.argv[1:])
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "recorded", "version": "1"},
    },
    "ping": {},
    "tools/list": {"tools": TOOLS},
}

while line := sys.stdin.readline():
    request = json.loads(line)
    if "method" not in request or "id" not in request:
        continue
    answer = {"error": {"code": -32601, "message": "method not found"}}
    if request["method"] in ANSWERS:
        answer = {"result": ANSWERS[request["method"]]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)

"""A server over standard streams that shows the line it was sent, or gives a fixed result."""

import json
import os
import sys

# What a tool `fixed` answers, byte for byte.
FIXED = os.environ.get("FIXED", "{}")
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "fixed")]


def answer(request, line):
    if request["method"] == "server/discover":
        return json.dumps({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "public",
        })
    if request["method"] == "tools/list":
        return json.dumps({"resultType": "complete", "tools": TOOLS, "ttlMs": 0, "cacheScope": "public"})
    if request["params"]["name"] == "fixed":
        return FIXED
    return json.dumps({"resultType": "complete", "content": [{"type": "text", "text": line}]})


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        id = json.dumps(request["id"])
        sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (id, answer(request, line.rstrip("\n"))))
        sys.stdout.flush()

"""A server of the session era over standard streams whose tool does what its arguments say.

`run` takes `steps`, one after the other: `ask` a question of this method, `progress` and `log` to
this number and text, `take_back` the last question, `answer` waits for the answer to the oldest
question, `wait` for a call of `go`, `die` is at once. Then it tells the answers.
"""

import json
import os
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("run", "go")]
asked = 0


def write(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def initialize(params):
    return {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "script", "version": "1"},
    }


def question(method):
    if method == "elicitation/create":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        return {"message": "Who?", "requestedSchema": schema}
    if method == "sampling/createMessage":
        return {"messages": [], "maxTokens": 1}
    return {}


def run(params):
    global asked
    token = params.get("_meta", {}).get("progressToken")
    waiting, answers = [], []
    for step in params["arguments"]["steps"]:
        kind, what = next(iter(step.items()))
        if kind == "ask":
            asked += 1
            waiting.append(f"q{asked}")
            write(id=waiting[-1], method=what, params=question(what))
        elif kind == "progress":
            write(method="notifications/progress", params={"progressToken": token, "progress": what})
        elif kind == "log":
            write(method="notifications/message", params={"level": "warning", "data": what})
        elif kind == "take_back":
            write(method="notifications/cancelled", params={"requestId": waiting.pop()})
        elif kind == "answer":
            wanted = waiting.pop(0)
            while (message := json.loads(sys.stdin.readline())).get("id") != wanted:
                pass
            answers.append(message.get("result", message.get("error")))
        elif kind == "wait":
            while (message := json.loads(sys.stdin.readline())).get("method") != "tools/call":
                pass
            write(id=message["id"], result={"content": []})
        elif kind == "die":
            print("out of luck", file=sys.stderr)
            sys.stderr.flush()
            os._exit(3)
    return {"content": [{"type": "text", "text": json.dumps(answers)}]}


METHODS = {
    "initialize": initialize,
    "ping": lambda _: {},
    "logging/setLevel": lambda _: {},
    "tools/list": lambda _: {"tools": TOOLS},
    "tools/call": run,
}

while line := sys.stdin.readline():
    request = json.loads(line)
    if "method" not in request or "id" not in request:
        continue
    if request["method"] in METHODS:
        write(id=request["id"], result=METHODS[request["method"]](request.get("params", {})))
    else:
        write(id=request["id"], error={"code": -32601, "message": "method not found"})

"""A server of the session era over standard streams that does what each tool's name says.

Arguments: how it treats what comes before `initialize`: `refuse` (default; then the code),
`silent`, `strict`, which refuses everything for want of it, or `late`, which answers
`server/discover` only when `initialize` comes.
"""

import json
import os
import sys
import threading

OUT = sys.stdout.buffer
LOCK = threading.Lock()
MODE = sys.argv[1] if len(sys.argv) > 1 else "refuse"
CODE = int(sys.argv[2]) if len(sys.argv) > 2 else -32601
state = {"discovered": 0, "asked": 0, "count": 0, "level": None, "client": None, "ready": False, "early": 0}
waiting = {}
cancelled = []
held = {}
subscribed = []
discover = []


def send(message):
    with LOCK:
        OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        OUT.flush()


def result(id, value):
    send({"id": id, "result": value})


def text(id, value):
    result(id, {"content": [{"type": "text", "text": json.dumps(value)}]})


def notify(method, params=None):
    send({"method": method, **({"params": params} if params is not None else {})})


def ask(method, params, then):
    state["asked"] += 1
    id = f"ask-{state['asked']}"
    waiting[id] = then
    send({"id": id, "method": method, "params": params})
    return id


def elicit(message, then):
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    ask("elicitation/create", {"message": message, "requestedSchema": schema}, then)


def call(id, params):
    name, arguments = params["name"], params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    if name == "echo":
        text(id, arguments)
    elif name == "count":
        state["count"] += 1
        text(id, {"count": state["count"], "pid": os.getpid()})
    elif name == "who":
        text(id, {**state, "params": params})
    elif name == "elicit":
        elicit("first", lambda answer: text(id, answer))
    elif name == "elicit-twice":
        elicit("first", lambda one: elicit("second", lambda two: text(id, [one, two])))
    elif name == "elicit-both":
        got = []

        def then(answer):
            got.append(answer)
            if len(got) == 2:
                text(id, got)

        elicit("first", then)
        elicit("second", then)
    elif name == "elicit-and-answer":
        elicit("first", lambda answer: None)
        text(id, "done without")
    elif name == "sample":
        params = {"messages": [], "maxTokens": 5}
        ask("sampling/createMessage", params, lambda answer: text(id, answer))
    elif name == "roots":
        ask("roots/list", {}, lambda answer: text(id, answer))
    elif name == "strict-elicit":

        def strict(answer):
            if "error" in answer:
                send({"id": id, "error": {"code": -32000, "message": answer["error"]["message"]}})
            else:
                text(id, answer)

        elicit("first", strict)
    elif name == "progress-elicit":
        notify("notifications/progress", {"progressToken": token, "progress": 1})

        def then(answer):
            notify("notifications/progress", {"progressToken": token, "progress": 2})
            text(id, answer)

        elicit("first", then)
    elif name == "log":
        for level in ["debug", "info", "error"]:
            notify("notifications/message", {"level": level, "data": name})
        text(id, state["level"])
    elif name == "hold":
        held[id] = True
    elif name == "held":
        text(id, {"held": list(held), "cancelled": cancelled})
    elif name == "release":
        for other in list(held):
            text(other, "released")
        held.clear()
        text(id, None)
    elif name == "withdraw":
        asked = ask("elicitation/create", {"message": "never mind"}, lambda answer: None)
        notify("notifications/cancelled", {"requestId": asked})
        text(id, "withdrawn")
    elif name == "visit":
        if state.get("visited"):
            return text(id, "visited")
        wanted = {"mode": "url", "elicitationId": "e1", "url": "https://a.example", "message": "m"}
        data = {"elicitations": [wanted]}
        send({"id": id, "error": {"code": -32042, "message": "visit first", "data": data}})
        state["visited"] = True
        notify("notifications/elicitation/complete", {"elicitationId": "e1"})
    elif name == "change":
        notify("notifications/tools/list_changed")
        notify("notifications/resources/updated", {"uri": "r:1"})
        text(id, subscribed)
    elif name == "ping":
        ask("ping", {}, lambda answer: text(id, answer))
    elif name == "crash":
        sys.stderr.write("about to die\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "stray":
        with LOCK:
            OUT.write(b'Server v1.0 running\n\n{"level":"info"}\n')
        text(id, None)
    else:
        send({"id": id, "error": {"code": -32602, "message": f"unknown tool `{name}`"}})


def request(id, method, params):
    if MODE == "strict" and not state["ready"] and method != "initialize":
        return send({"id": id, "error": {"code": -32600, "message": "Server not initialized"}})
    if method == "server/discover":
        state["discovered"] += 1
        if MODE == "late":
            discover.append(id)
        elif MODE == "refuse":
            send({"id": id, "error": {"code": CODE, "message": "Method not found"}})
    elif method == "initialize":
        if discover:
            result(discover[0], {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        if MODE == "late":
            data = {"supported": ["2026-07-28"], "requested": params["protocolVersion"]}
            return send({"id": id, "error": {"code": -32022, "message": "modern", "data": data}})
        state["client"] = params
        capabilities = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True},
            "logging": {},
        }
        info = {"name": "old", "version": "1"}
        result(
            id,
            {
                "protocolVersion": "2025-06-18",
                "capabilities": capabilities,
                "serverInfo": info,
                "instructions": "be kind",
            },
        )
    elif method == "tools/call":
        if not state["ready"] and MODE != "late":
            state["early"] += 1
        call(id, params)
    elif method == "tools/list":
        names = ["echo", "elicit", "held"]
        result(id, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
    elif method == "resources/read":
        send({"id": id, "error": {"code": -32002, "message": "no such resource"}})
    elif method == "resources/subscribe":
        subscribed.append(params["uri"])
        result(id, {})
    elif method == "resources/unsubscribe":
        subscribed.remove(params["uri"])
        result(id, {})
    elif method == "logging/setLevel":
        state["level"] = params["level"]
        result(id, {})
    elif method == "ping":
        result(id, {})
    else:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        then = waiting.pop(message["id"], None)
        if then:
            then({k: message[k] for k in ("result", "error") if k in message})
    elif "id" in message:
        request(message["id"], message["method"], message.get("params", {}))
    elif message["method"] == "notifications/initialized":
        state["ready"] = True
    elif message["method"] == "notifications/cancelled":
        cancelled.append(message["params"]["requestId"])

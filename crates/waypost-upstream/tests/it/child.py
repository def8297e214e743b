"""A server over standard streams that does what each tool's name says."""

import json
import os
import signal
import sys

OUT = sys.stdout.buffer
held = {}
cancelled = []
answers = []
creating = []
stopped = []


def send(message):
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    OUT.flush()


def result(id, value):
    send({"id": id, "result": value})


def notify(method, params):
    send({"method": method, "params": params})


def call(id, params):
    name, arguments = params["name"], params.get("arguments", {})
    token = params["_meta"].get("progressToken")
    if name == "echo":
        result(id, {"echo": arguments})
    elif name == "string-id":
        result(str(id), {"name": name})
    elif name == "bare":
        print(json.dumps({"id": id, "result": {"name": name}}), flush=True)
    elif name == "hold":
        held[id] = True
    elif name == "cancelled":
        result(id, {"cancelled": cancelled, "held": list(held)})
    elif name == "task":
        creating.append(id)
    elif name == "created":
        for n in creating:
            result(n, {"resultType": "task", "taskId": "t", "status": "working"})
        result(id, {"created": creating})
    elif name == "stopped":
        result(id, {"stopped": stopped})
    elif name == "null-result":
        send({"id": None, "result": {"secret": 1}})
        result(id, {"own": True})
    elif name == "answers":
        result(id, {"answers": answers})
    elif name == "stray":
        OUT.write(b'Server v1.0 running\n\n{"level":"info","id":%d}\n\xff\xfe\nnull\n' % id)
        result(id, {})
    elif name == "bad-utf8":
        OUT.write(b'{"jsonrpc":"2.0","id":%d,"result":{"a":"\xff"}}\n' % id)
        OUT.flush()
    elif name == "environ":
        result(id, {"env": sorted(os.environ), "cwd": os.getcwd()})
    elif name == "pieces":
        text = ("語🦀é\u2028" * 12000)[: arguments["length"]]
        line = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"text": text}}, ensure_ascii=False)
        line = line.encode() + b"\n"
        size = arguments["size"]
        for at in range(0, len(line), size):
            os.write(1, line[at : at + size])
    elif name == "big":
        result(id, {"text": "x" * arguments["length"]})
    elif name == "big-id-last":
        line = {"result": {"text": "x" * arguments["length"]}, "jsonrpc": "2.0", "id": id}
        OUT.write(json.dumps(line).encode() + b"\n")
        OUT.flush()
    elif name == "ask":
        send({"id": "q", "method": "roots/list"})
        held[id] = True
    elif name == "release":
        for other in list(held):
            result(other, {"released": True})
            del held[other]
        result(id, {})
    elif name == "progress":
        for n in range(arguments["count"]):
            notify("notifications/progress", {"progressToken": token, "progress": n})
        result(id, {})
    elif name == "progress-for":
        notify("notifications/progress", {"progressToken": arguments["token"], "progress": 1})
        notify("notifications/message", {"level": "info", "data": "hello"})
        result(id, {})
    elif name == "log":
        notify("notifications/message", {"level": "info", "data": "hello"})
        result(id, {})
    elif name == "kill":
        sys.stderr.write("about to die\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "own-error":
        send({"id": id, "error": {"message": "own", **arguments}})
    elif name == "null-error":
        send({"id": None, "error": {"code": -32600, "message": "m"}})
    elif name == "pids":
        child = os.fork()
        if child == 0:
            # Deaf to the end of the input, but no test that fails leaves it for good.
            signal.alarm(120)
            signal.pause()
        result(id, {"own": os.getpid(), "child": child})


for line in sys.stdin:
    message = json.loads(line)
    method, params, id = message.get("method"), message.get("params", {}), message.get("id")
    if method == "server/discover":
        result(id, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    elif method == "initialize":
        data = {"supported": ["2026-07-28"], "requested": params["protocolVersion"]}
        send({"id": id, "error": {"code": -32022, "message": "modern", "data": data}})
    elif method == "tools/call":
        call(id, params)
    elif method == "tasks/cancel":
        declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
        stopped.append([params["taskId"], list(declared)])
        result(id, {})
    elif method == "subscriptions/listen":
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        notify("notifications/subscriptions/acknowledged", {"_meta": meta})
        for _ in range(params.get("count", 0)):
            notify("notifications/tools/list_changed", {"_meta": meta})
        held[id] = True
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
        held.pop(params["requestId"], None)
    elif method is None:
        answers.append(message["error"]["code"])

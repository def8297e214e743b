"""A server of 2025-11-25 over standard streams whose tool is only called as a task.

The task of `run` takes `steps`, one after the other: `ask` a question of this method, `answer`
waits for the answer to the oldest question, `wait` for a call of `go`, `die` is at once. Then it
tells the answers.
"""

import json
import os
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("run", "go")]
TOOLS[0]["execution"] = {"taskSupport": "required"}
QUESTIONS = {
    "elicitation/create": {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
}
tasks = {}


def write(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class Task:
    def __init__(self, steps):
        self.id = f"task{len(tasks)}"
        self.steps, self.status = steps, "working"
        self.unsent, self.open, self.answers = [], [], {}
        self.told, self.asks, self.result_id = [], 0, None

    def view(self):
        when = "2026-01-01T00:00:00Z"
        return {
            "taskId": self.id, "status": self.status, "ttl": None, "pollInterval": 20,
            "createdAt": when, "lastUpdatedAt": when,
        }

    def advance(self, gone=False):
        """Goes on as far as it can."""
        while self.steps and self.status != "cancelled":
            kind, what = next(iter(self.steps[0].items()))
            if kind == "ask":
                self.asks += 1
                question = f"{self.id}q{self.asks}"
                self.unsent.append((question, what))
                self.open.append(question)
            elif kind == "answer":
                if self.open[0] not in self.answers:
                    break
                self.told.append(self.answers[self.open.pop(0)])
            elif kind == "wait":
                if not gone:
                    break
                gone = False
            elif kind == "die":
                os._exit(3)
            self.steps.pop(0)
        if self.status != "cancelled":
            asks = any(question not in self.answers for question in self.open)
            over = "completed" if not self.steps else "working"
            self.status = "input_required" if self.steps and asks else over
        self.tell()

    def tell(self):
        """What belongs to the open `tasks/result`."""
        if self.result_id is None:
            return
        related = {"io.modelcontextprotocol/related-task": {"taskId": self.id}}
        for question, method in self.unsent:
            write(id=question, method=method, params={**QUESTIONS.get(method, {}), "_meta": related})
        self.unsent = []
        if self.status == "completed":
            content = [{"type": "text", "text": json.dumps(self.told)}]
            write(id=self.result_id, result={"content": content, "_meta": related})
        elif self.status == "cancelled":
            write(id=self.result_id, error={"code": -32000, "message": "cancelled"})


def initialize(_):
    can = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    return {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "tasks": can},
        "serverInfo": {"name": "job", "version": "1"},
    }


def call(params):
    if params["name"] == "run":
        task = Task(params["arguments"]["steps"])
        tasks[task.id] = task
        return {"task": task.view()}
    return {"content": []}


def cancel(params):
    task = tasks[params["taskId"]]
    task.status = "cancelled"
    return task.view()


METHODS = {
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": lambda _: {"tools": TOOLS},
    "tools/call": call,
    "tasks/get": lambda params: tasks[params["taskId"]].view(),
    "tasks/cancel": cancel,
}

while line := sys.stdin.readline():
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "tasks/result":
        tasks[params["taskId"]].result_id = message["id"]
    elif method is None:
        for task in tasks.values():
            if message["id"] in task.open:
                task.answers[message["id"]] = message.get("result", message.get("error"))
    elif "id" in message and method in METHODS:
        write(id=message["id"], result=METHODS[method](params))
    elif "id" in message:
        write(id=message["id"], error={"code": -32601, "message": "unknown method"})
    goes = method == "tools/call" and params["name"] == "go"
    for task in tasks.values():
        if task.steps or task.result_id == message.get("id"):
            task.advance(goes)

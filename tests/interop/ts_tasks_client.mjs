// Drives a task server with the official client and its tasks package:
// `ts_tasks_client.mjs URL [TOOL PREFIX [search]]`, against the tools of `fastmcp_task_server.py`; with
// `search` each of them is called through `call_tool`.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
} from "@modelcontextprotocol/ext-tasks/client";
import { VERSION, say, textOf } from "./peer.mjs";
import { send } from "./wire.mjs";

const [url, prefix = "", mode = ""] = process.argv.slice(2);
/** What to call, and with what, so that the server's `tool` gets these arguments. */
const through = (tool, args) =>
  mode === "search" ? ["call_tool", { name: prefix + tool, arguments: args }] : [prefix + tool, args];
const clientInfo = { name: "typescript-tasks-peer", version: "2.4.0" };
const capabilities = { elicitation: {} };

/** The part the package leaves to its host: putting a framed request on the wire. */
async function rawDispatch(request, { signal, context } = {}) {
  const answer = await send(url, request.method, request.params, {
    headers: context?.headers,
    signal,
  });
  return answer.error
    ? { kind: "error", error: answer.error }
    : { kind: "result", result: answer.result };
}

const asked = [];
const refuse = () => {
  throw new Error("only elicitation is expected");
};
const onInputRequest = createApplicationInputHandler({
  elicitation: ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: { confirm: true } };
  },
  sampling: refuse,
  roots: refuse,
});

const client = new Client(clientInfo, {
  capabilities,
  versionNegotiation: { mode: { pin: VERSION } },
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
say("connected", { extensions: client.getServerCapabilities()?.extensions ?? null });
say("tools", { names: (await client.listTools()).tools.map((tool) => tool.name) });

const session = createTaskSessionFromClient(client, {
  endpointId: "interop",
  onInputRequest,
  rawDispatch,
  v2RequestFraming: { protocolVersion: VERSION, clientInfo, clientCapabilities: capabilities },
});

/** Calls a tool and waits for its end, saying whether it went by way of a task. */
async function settle(step, tool, params, fields = () => ({})) {
  const execution = await session.callTool(...through(tool, params));
  const { outcome } = await execution.settle();
  const { status, result, error } = outcome;
  say(step, {
    kind: execution.kind,
    id: execution.handle?.taskId,
    status,
    text: result && textOf(result),
    error: error?.message ?? result?.isError ?? false,
    ...fields(),
  });
}

await settle("plain", "greet", { name: "Ada" });
await settle("task", "slow_compute", { seconds: 0.3, label: "task" });
await settle("failed", "failing_job", {});
await settle("asked", "confirm_delete", { filename: "a.txt" }, () => ({ messages: asked }));

const never = { seconds: 60, label: "never" };
const doomed = await session.callTool(...through("slow_compute", never));
await doomed.cancel();
say("cancelled", { status: (await doomed.settle()).outcome.status });

await session.close();
await client.close();
say("done");

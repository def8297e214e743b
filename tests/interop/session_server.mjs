// A server of the TypeScript SDK 1.x, sessions and all: `session_server.mjs` over HTTP,
// `session_server.mjs --stdio` over pipes. Its tools, prompts and resources are those of
// `ts_server.mjs`.
import { randomUUID } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  CallToolRequestSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  ReadResourceRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { endWithStdin, listen, say } from "./peer.mjs";

const text = (value) => ({ content: [{ type: "text", text: value }] });
const said = (value) => ({ messages: [{ role: "user", content: { type: "text", text: value } }] });
const name = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

/** How many tools have been added while it ran; who hears of a change will find one. */
let added = 0;

const TOOLS = {
  test_simple_text: async () => text("This is a simple text response for testing."),
  test_tool_with_progress: async (_, { _meta, sendNotification }) => {
    for (const progress of [0, 50, 100]) {
      const params = { progressToken: _meta?.progressToken, progress, total: 100 };
      if (_meta?.progressToken !== undefined)
        await sendNotification({ method: "notifications/progress", params });
    }
    return text("progress reported");
  },
  test_input_required_result_elicitation: async (server, { requestId }) => {
    const question = { message: "What is your name?", requestedSchema: name };
    const answer = await server.elicitInput(question, { relatedRequestId: requestId });
    return text(`Hello, ${answer.content?.name}!`);
  },
  test_trigger_tool_change: async (server) => {
    added += 1;
    await server.sendToolListChanged();
    return text("announced");
  },
};

const PROMPTS = {
  test_simple_prompt: () => said("This is a simple prompt for testing."),
  test_prompt_with_arguments: ({ arg1, arg2 }) => said(`arg1='${arg1}', arg2='${arg2}'`),
};

const named = (all, more = {}) => Object.keys(all).map((key) => ({ name: key, ...more }));

function create() {
  const server = new Server(
    { name: "typescript-session-peer", version: "1.32.2" },
    { capabilities: { tools: { listChanged: true }, prompts: {}, resources: {} } },
  );
  server.setRequestHandler(ListToolsRequestSchema, async () => {
    const more = Array.from({ length: added }, (_, number) => [`added_${number + 1}`, null]);
    const inputSchema = { type: "object", properties: {} };
    return { tools: named({ ...TOOLS, ...Object.fromEntries(more) }, { inputSchema }) };
  });
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) =>
    TOOLS[params.name](server, extra),
  );
  server.setRequestHandler(ListPromptsRequestSchema, async () => ({ prompts: named(PROMPTS) }));
  server.setRequestHandler(GetPromptRequestSchema, async ({ params }) =>
    PROMPTS[params.name](params.arguments ?? {}),
  );
  const uri = "test://static-text";
  server.setRequestHandler(ListResourcesRequestSchema, async () => ({
    resources: [{ uri, name: "static text", mimeType: "text/plain" }],
  }));
  server.setRequestHandler(ReadResourceRequestSchema, async () => ({
    contents: [{ uri, mimeType: "text/plain", text: "static text for testing" }],
  }));
  return server;
}

/** One transport a session, found by its id, as the SDK's own examples do it. */
const transports = new Map();

async function serve(request, response) {
  const id = request.headers["mcp-session-id"];
  if (id !== undefined && !transports.has(id)) {
    const error = { code: -32001, message: "Session not found" };
    response.writeHead(404, { "content-type": "application/json" });
    return response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
  }
  const transport =
    transports.get(id) ??
    new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (opened) => transports.set(opened, transport),
      onsessionclosed: (closed) => transports.delete(closed),
    });
  if (id === undefined) await create().connect(transport);
  return transport.handleRequest(request, response);
}

if (process.argv.includes("--stdio")) {
  await create().connect(new StdioServerTransport());
} else {
  const origin = await listen(serve);
  say("listening", { url: `${origin}/mcp` });
  endWithStdin();
}

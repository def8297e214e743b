// A server of `@modelcontextprotocol/server`: `ts_server.mjs` over HTTP, `ts_server.mjs --stdio` over
// pipes. Its tools, prompts and resources carry the names the conformance suite uses, so that one
// client script drives this, the demo server and a gateway in front of either.
import {
  McpServer,
  acceptedContent,
  createMcpHandler,
  fromJsonSchema,
  inputRequired,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { endWithStdin, fromFetch, listen, say } from "./peer.mjs";

const text = (value) => ({ content: [{ type: "text", text: value }] });
const args = (properties, required = Object.keys(properties)) =>
  fromJsonSchema({ type: "object", properties, required });
const string = { type: "string" };

/** How many tools have been added while it ran; who hears of a change will find one. */
let added = 0;
const addTool = (server, number) =>
  server.registerTool(
    `added_${number}`,
    { description: "Was not there before.", inputSchema: args({}) },
    async () => text("new"),
  );
/** Adding one announces it; over HTTP each request has its own server, so there the entry does it. */
let toolAdded = (server) => addTool(server, added);

function tools(server) {
  server.registerTool(
    "test_simple_text",
    { description: "Answers with a fixed text.", inputSchema: args({}) },
    async () => text("This is a simple text response for testing."),
  );
  server.registerTool(
    "test_tool_with_progress",
    { description: "Reports progress three times.", inputSchema: args({}) },
    async (_, context) => {
      const { _meta, notify } = context.mcpReq;
      for (const progress of [0, 50, 100]) {
        const params = { progressToken: _meta?.progressToken, progress, total: 100 };
        if (_meta?.progressToken !== undefined)
          await notify({ method: "notifications/progress", params });
      }
      return text("progress reported");
    },
  );
  server.registerTool(
    "test_input_required_result_elicitation",
    { description: "Asks for a name before it greets.", inputSchema: args({}) },
    async (_, context) => {
      const answer = acceptedContent(context.mcpReq.inputResponses, "user_name");
      if (answer) return text(`Hello, ${answer.name}!`);
      const requestedSchema = { type: "object", properties: { name: string }, required: ["name"] };
      const question = inputRequired.elicit({ message: "What is your name?", requestedSchema });
      return inputRequired({ inputRequests: { user_name: question }, requestState: "asked once" });
    },
  );
  server.registerTool(
    "test_trigger_tool_change",
    { description: "Adds a tool and announces that.", inputSchema: args({}) },
    async () => {
      added += 1;
      toolAdded(server);
      return text("announced");
    },
  );
  for (let number = 1; number <= added; number += 1) addTool(server, number);
}

function promptsAndResources(server) {
  server.registerPrompt("test_simple_prompt", { description: "A fixed prompt." }, async () => ({
    messages: [
      { role: "user", content: { type: "text", text: "This is a simple prompt for testing." } },
    ],
  }));
  server.registerPrompt(
    "test_prompt_with_arguments",
    { description: "Repeats its arguments.", argsSchema: args({ arg1: string, arg2: string }) },
    async ({ arg1, arg2 }) => ({
      messages: [
        { role: "user", content: { type: "text", text: `arg1='${arg1}', arg2='${arg2}'` } },
      ],
    }),
  );
  server.registerResource(
    "static text",
    "test://static-text",
    { mimeType: "text/plain" },
    async (uri) => ({
      contents: [{ uri: uri.href, mimeType: "text/plain", text: "static text for testing" }],
    }),
  );
}

function create() {
  const server = new McpServer(
    { name: "typescript-peer", version: "2.4.0" },
    { capabilities: { tools: { listChanged: true } }, instructions: "A peer for tests." },
  );
  tools(server);
  promptsAndResources(server);
  return server;
}

if (process.argv.includes("--stdio")) {
  serveStdio(create);
} else {
  const handler = createMcpHandler(create);
  toolAdded = () => handler.notify.toolsChanged();
  const origin = await listen(fromFetch(handler.fetch));
  say("listening", { url: `${origin}/mcp` });
  endWithStdin();
}

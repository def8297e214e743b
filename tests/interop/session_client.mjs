// Drives a server with the TypeScript SDK 1.x, which opens a session of 2025-11-25:
// `session_client.mjs URL [TOOL PREFIX [2|sse]]`; with the 2 it is the SDK 2.x, which does so too
// unless told otherwise, with `sse` the SDK 1.x over HTTP+SSE. The server has the tools, prompts and resources of `ts_server.mjs`, directly or
// behind a gateway that puts PREFIX in front of tool and prompt names.
import * as two from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  ElicitRequestSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { say, textOf } from "./peer.mjs";

const [url, prefix = "", version = "1"] = process.argv.slice(2);
const sdk =
  version === "2"
    ? { ...two, elicit: "elicitation/create", changed: "notifications/tools/list_changed" }
    : {
        Client,
        StreamableHTTPClientTransport,
        elicit: ElicitRequestSchema,
        changed: ToolListChangedNotificationSchema,
      };
const client = new sdk.Client(
  { name: "typescript-session", version },
  { capabilities: { elicitation: {} } },
);
const asked = [];
client.setRequestHandler(sdk.elicit, async ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { name: "Ada" } };
});
const changed = new Promise((resolve) =>
  client.setNotificationHandler(sdk.changed, resolve),
);
const Transport = version === "sse" ? SSEClientTransport : sdk.StreamableHTTPClientTransport;
const transport = new Transport(new URL(url));
// Over HTTP+SSE nothing else tells which version was agreed on.
transport.setProtocolVersion = function (agreed) {
  this.agreed = agreed;
  return Transport.prototype.setProtocolVersion.call(this, agreed);
};
await client.connect(transport);
const call = (name, options) =>
  client.callTool(
    { name: `${prefix}${name}`, arguments: {} },
    // Where the SDK 1.x wants a schema of the result.
    ...(version === "2" ? [options] : [undefined, options]),
  );

const capabilities = client.getServerCapabilities();
say("connected", { version: transport.agreed, tools: capabilities.tools !== undefined });
say("tools", { names: (await client.listTools()).tools.map((tool) => tool.name) });
say("prompts", { names: (await client.listPrompts()).prompts.map((prompt) => prompt.name) });
say("resources", { uris: (await client.listResources()).resources.map(({ uri }) => uri) });
say("plain", { text: textOf(await call("test_simple_text")) });

const values = [];
const onprogress = ({ progress }) => values.push(progress);
const { isError } = await call("test_tool_with_progress", { onprogress });
say("progress", { values, error: isError ?? false });
const greeting = await call("test_input_required_result_elicitation");
say("asked", { text: textOf(greeting), messages: asked });

const prompt = await client.getPrompt({
  name: `${prefix}test_prompt_with_arguments`,
  arguments: { arg1: "one", arg2: "two" },
});
say("prompt", { text: prompt.messages[0].content.text });
const { contents } = await client.readResource({ uri: "test://static-text" });
say("resource", { text: contents[0].text });

await call("test_trigger_tool_change");
const late = setTimeout(() => {
  throw new Error("no tools/list_changed in 15 s");
}, 15_000);
await changed;
clearTimeout(late);
say("listened", { event: "ToolsListChanged" });
if (transport.sessionId) await transport.terminateSession();
await client.close();
say("done");

// Calls tools through search mode with the official client: `search_client.mjs URL CALLS [direct]`, CALLS
// being JSON of `[{ name, arguments }]`. Each is described first, and reported as a step of its name; with
// `direct` it is called itself, and its description is what the list says.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { VERSION, say, textOf } from "./peer.mjs";

const [url, calls, mode] = process.argv.slice(2);
const client = new Client(
  { name: "typescript-search", version: "1" },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    versionNegotiation: { mode: { pin: VERSION } },
  },
);
client.setRequestHandler("elicitation/create", async () => ({
  action: "accept",
  content: { name: "Ada", interpretation: "technical" },
}));
client.setRequestHandler("sampling/createMessage", async () => ({
  role: "assistant",
  model: "none",
  content: { type: "text", text: "sampled text" },
}));
client.setRequestHandler("roots/list", async () => ({ roots: [{ uri: "file:///roots" }] }));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
say("tools", { names: tools.map((tool) => tool.name) });

const describe = async (name) =>
  mode === "direct"
    ? tools.find((tool) => tool.name === name)
    : (await client.callTool({ name: "describe_tool", arguments: { name } })).structuredContent;

for (const { name, arguments: args } of JSON.parse(calls)) {
  const described = await describe(name);
  const call = { name, arguments: args };
  const steps = [];
  const result = await client.callTool(
    mode === "direct" ? call : { name: "call_tool", arguments: call },
    { onprogress: ({ progress }) => steps.push(progress) },
  );
  say(name, {
    described: described?.name,
    text: textOf(result),
    kinds: result.content.map(({ type }) => type),
    structured: result.structuredContent ?? null,
    error: result.isError ?? false,
    progress: steps,
  });
}
await client.close();
say("done");

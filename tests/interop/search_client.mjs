// Calls tools through search mode with the official client: `search_client.mjs URL CALLS`, CALLS being
// JSON of `[{ name, arguments }]`. Each is described first, and reported as a step of its name.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { VERSION, say, textOf } from "./peer.mjs";

const [url, calls] = process.argv.slice(2);
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
say("tools", { names: (await client.listTools()).tools.map((tool) => tool.name) });

for (const { name, arguments: args } of JSON.parse(calls)) {
  const described = await client.callTool({ name: "describe_tool", arguments: { name } });
  const steps = [];
  const result = await client.callTool(
    { name: "call_tool", arguments: { name, arguments: args } },
    { onprogress: ({ progress }) => steps.push(progress) },
  );
  say(name, {
    described: described.structuredContent?.name,
    text: textOf(result),
    kinds: result.content.map(({ type }) => type),
    structured: result.structuredContent ?? null,
    error: result.isError ?? false,
    progress: steps,
  });
}
await client.close();
say("done");

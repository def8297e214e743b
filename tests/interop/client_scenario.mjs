// Drives one client scenario of the conformance suite through Waypost. The suite starts it as
// `node … client_scenario.mjs URL`, with the scenario's name in its environment; Waypost becomes the
// client of that URL, and the official client here gives it something to do.
// With `--direct` in front of the URL there is no gateway: that shows that the driver itself is enough.
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { startGateway } from "./gateway.mjs";
import { VERSION } from "./peer.mjs";
import { ask, framed, send } from "./wire.mjs";

const capabilities = { elicitation: {}, sampling: {}, roots: {} };

/** What a form says where nothing else is written into it. */
const defaults = ({ requestedSchema: { properties } }) =>
  Object.fromEntries(
    Object.entries(properties).flatMap(([key, field]) =>
      "default" in field ? [[key, field.default]] : [],
    ),
  );

async function connect(url) {
  const client = new Client(
    { name: "scenario-driver", version: "1" },
    { capabilities, versionNegotiation: { mode: { pin: VERSION } } },
  );
  client.setRequestHandler("elicitation/create", async ({ params }) => ({
    action: "accept",
    content: { confirmed: true, ...defaults(params) },
  }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  await client.listTools();
  return client;
}

const call = (client, name, args = {}) => client.callTool({ name, arguments: args });

const SCENARIOS = {
  // The server turns the first request away; that Waypost comes back is all there is to see.
  "request-metadata": (url) => ask(url, "tools/list", {}, capabilities),

  tools_call: async (url) => {
    const { content } = await call(await connect(url), "add_numbers", { a: 5, b: 3 });
    assert.equal(content[0].text, "The sum of 5 and 3 is 8");
  },

  "http-standard-headers": async (url) => {
    const client = await connect(url);
    await call(client, "test_headers");
    await call(client, "my-hyphenated-tool");
    const { resources } = await client.listResources();
    assert.equal(resources.length, 2);
    for (const { uri } of resources) await client.readResource({ uri });
    const { prompts } = await client.listPrompts();
    for (const { name } of prompts) await client.getPrompt({ name });
  },

  "http-custom-headers": async (url) => {
    const client = await connect(url);
    const { toolCalls } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT);
    for (const { name, arguments: args } of toolCalls) await call(client, name, args);
  },

  "http-invalid-tool-headers": async (url, { direct }) => {
    const { tools } = await ask(url, "tools/list");
    const names = tools.map((tool) => tool.name);
    if (!direct) assert.deepEqual(names, ["valid_tool"]);
    await call(await connect(url), "valid_tool", { region: "us-west1" });
    // What is not listed must not be callable by guessing either.
    const guess = { name: "invalid_empty_header", arguments: { value: "x" } };
    if (!direct) assert.equal((await send(url, "tools/call", framed(guess))).error.code, -32602);
  },

  "sep-2322-client-request-state": async (url) => {
    const client = await connect(url);
    const answers = await Promise.all([
      call(client, "test_mrtr_echo_state"),
      call(client, "test_mrtr_unrelated"),
      call(client, "test_mrtr_no_state"),
    ]);
    const texts = answers.map(({ content }) => content[0].text);
    assert.deepEqual(texts, ["echo-state-ok", "unrelated-ok", "no-state-ok"]);
    const plain = await send(
      url,
      "tools/call",
      framed({ name: "test_mrtr_no_result_type", arguments: {} }, capabilities),
    );
    assert.equal(plain.result.content[0].text, "no-result-type-test-ok");
  },

  // The session era: Waypost opens the session that the scenario's server wants.
  initialize: (url) => ask(url, "tools/list", {}, capabilities),

  "elicitation-sep1034-client-defaults": async (url) => {
    const { content } = await call(await connect(url), "test_client_elicitation_defaults");
    assert.match(content[0].text, /^Elicitation completed: /);
  },

  "sse-retry": async (url) => {
    const { content } = await call(await connect(url), "test_reconnection");
    assert.equal(content[0].text, "Reconnection test completed successfully");
  },

  "json-schema-ref-no-deref": async (url) => {
    const { tools } = await ask(url, "tools/list");
    assert.equal(tools[0].name, "lookup_user");
  },
};

const direct = process.argv[2] === "--direct";
const upstream = process.argv.at(-1);
const name = process.env.MCP_CONFORMANCE_SCENARIO;
const scenario = SCENARIOS[name];
assert.ok(scenario, `no driver for the scenario \`${name}\``);

const gateway = direct ? { url: upstream, stop: () => {} } : await startGateway(upstream);
try {
  await scenario(gateway.url, { direct });
} catch (error) {
  console.error(gateway.log?.join("\n"));
  throw error;
} finally {
  await gateway.stop();
}
// Connections of the client may stay open; the scenario is over.
process.exit(0);

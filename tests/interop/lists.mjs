// Reads every list of a server: `lists.mjs URL SDK`, where SDK is `1`, `2`, or `2-session` for the
// second one in a session.
import * as two from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { VERSION, say } from "./peer.mjs";

const [url, sdk] = process.argv.slice(2);
const { C, T } =
  sdk === "1"
    ? { C: Client, T: StreamableHTTPClientTransport }
    : { C: two.Client, T: two.StreamableHTTPClientTransport };
const pinned = { versionNegotiation: { mode: { pin: VERSION } } };
const client = new C({ name: "lists", version: sdk }, sdk === "2" ? pinned : {});
await client.connect(new T(new URL(url)));
say("tools", { names: (await client.listTools()).tools.map(({ name }) => name) });
say("prompts", { names: (await client.listPrompts()).prompts.map(({ name }) => name) });
say("resources", { names: (await client.listResources()).resources.map(({ uri }) => uri) });
const { resourceTemplates } = await client.listResourceTemplates();
say("templates", { names: resourceTemplates.map(({ uriTemplate }) => uriTemplate) });
await client.close();
say("done");

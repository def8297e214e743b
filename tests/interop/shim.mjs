// A proxy that hides a gateway's prefixes: `shim.mjs GATEWAY_URL PREFIX...`. The conformance suite
// calls fixed tool names; behind this it proves an endpoint whose names carry prefixes. Nothing but
// names changes: headers, statuses, streams and disconnects pass as they are.
import http from "node:http";
import { endWithStdin, listen, say } from "./peer.mjs";
import { ask } from "./wire.mjs";

const [gateway, ...prefixes] = process.argv.slice(2);
const authority = new URL(gateway).host;
/** Where the gateway says how a tool or prompt is called at its server; shortened names need it. */
const ORIGINAL = "dev.waypost/name";
const LISTS = { "tools/list": "tools", "prompts/list": "prompts" };

const prefixOf = ({ name }) => prefixes.find((prefix) => name.startsWith(prefix));
const isOurs = (item) => prefixOf(item) !== undefined;
const original = (item) => item._meta?.[ORIGINAL] ?? item.name.slice(prefixOf(item).length);

/** Original name to exposed name, as the gateway lists them; paged to the end. */
async function table(method) {
  const names = new Map();
  let cursor;
  do {
    const page = await ask(gateway, method, cursor === undefined ? {} : { cursor });
    for (const item of page[LISTS[method]].filter(isOurs)) names.set(original(item), item.name);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return names;
}

/** The object in a request that holds a name, and the list that name is from. */
function named({ method, params }) {
  if (method === "tools/call") return [params, "tools/list"];
  if (method === "prompts/get") return [params, "prompts/list"];
  if (method === "completion/complete" && params?.ref?.type === "ref/prompt")
    return [params.ref, "prompts/list"];
  return [];
}

/** Puts the exposed name into a request; returns the table it used, if it needed one. */
async function expose(message) {
  const [holder, list] = named(message);
  if (holder === undefined) return undefined;
  const names = await table(list);
  holder.name = names.get(holder.name) ?? holder.name;
  return names;
}

/** Puts original names back into a list's answer and leaves out what is under no prefix. */
function hide(message, key) {
  const items = message.result?.[key];
  if (items) {
    message.result[key] = items
      .filter(isOurs)
      .map((item) => ({ ...item, name: original(item) }));
  }
  return JSON.stringify(message);
}

function hideIn(text, isStream, key) {
  if (!isStream) return hide(JSON.parse(text), key);
  return text.replace(/^data:\s*(\{.*\})\s*$/gm, (_, data) => `data: ${hide(JSON.parse(data), key)}`);
}

/** The request's headers, own authority and names replaced, in the order and number they came. */
function headersFor(incoming, names, length) {
  const own = incoming.socket.localPort;
  const isOwn = new RegExp(`(127\\.0\\.0\\.1|localhost|\\[::1\\]):${own}$`);
  const out = [];
  for (let i = 0; i < incoming.rawHeaders.length; i += 2) {
    const name = incoming.rawHeaders[i];
    let value = incoming.rawHeaders[i + 1];
    if (/^(content-length|transfer-encoding)$/i.test(name)) continue;
    if (/^(host|origin)$/i.test(name)) value = value.replace(isOwn, authority);
    // A header that names something else than the body is a test of its own: it passes as it is.
    if (/^mcp-name$/i.test(name)) value = names?.get(value.trim()) ?? value;
    out.push(name, value);
  }
  if (length !== undefined) out.push("Content-Length", String(length));
  return out;
}

async function bodyOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function parsed(body) {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

async function proxy(incoming, outgoing) {
  let body = await bodyOf(incoming);
  const message = parsed(body);
  const names = message && (await expose(message));
  if (names) body = Buffer.from(JSON.stringify(message));
  const headers = headersFor(incoming, names, body.length || undefined);
  const path = new URL(gateway).pathname;
  const request = http.request(gateway, { method: incoming.method, path, headers });
  outgoing.on("close", () => request.destroy());
  request.on("error", () => outgoing.destroy());
  request.on("response", (response) => answer(response, outgoing, LISTS[message?.method]));
  request.end(body);
}

async function answer(response, outgoing, list) {
  if (list === undefined) {
    outgoing.writeHead(response.statusCode, response.rawHeaders);
    outgoing.flushHeaders();
    response.pipe(outgoing);
    return;
  }
  const isStream = response.headers["content-type"]?.startsWith("text/event-stream");
  const text = hideIn((await bodyOf(response)).toString(), isStream, list);
  const { "content-length": _, "transfer-encoding": __, ...headers } = response.headers;
  outgoing.writeHead(response.statusCode, headers);
  outgoing.end(text);
}

const origin = await listen((incoming, outgoing) => {
  proxy(incoming, outgoing).catch((error) => outgoing.destroy(error));
});
say("listening", { url: `${origin}/mcp` });
endWithStdin();

// One modern request over HTTP, as plain as it gets: for what no client library sends or shows.
import { VERSION } from "./peer.mjs";

const NAMED_BY = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};
let lastId = 0;

/** `params` with the `_meta` that every modern request carries. */
export function framed(params, capabilities = {}) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": { name: "wire", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": capabilities,
  };
  return { ...params, _meta: { ...params?._meta, ...meta } };
}

/** The headers that mirror a request's body. */
export function headersOf(method, params) {
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": VERSION,
    "mcp-method": method,
  };
  const name = params?.[NAMED_BY[method]];
  if (name !== undefined) headers["mcp-name"] = headerValue(name);
  return headers;
}

/** A header's spelling of `text`: itself where that is safe, base64 between the sentinels otherwise. */
export function headerValue(text) {
  const plain = /^[\x20-\x7e]*$/.test(text) && text.trim() === text && !text.startsWith("=?base64?");
  return plain ? text : `=?base64?${Buffer.from(text).toString("base64")}?=`;
}

/** Sends an already framed request; resolves with its JSON-RPC response, however it was delivered. */
export async function send(url, method, params, { headers, signal } = {}) {
  const id = `wire-${++lastId}`;
  // Through `Headers`, so that a caller's other spelling of a name replaces ours instead of joining it.
  const all = new Headers(headersOf(method, params));
  for (const [name, value] of Object.entries(headers ?? {})) all.set(name, value);
  const response = await fetch(url, {
    method: "POST",
    headers: all,
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params }),
    signal,
  });
  const text = await response.text();
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  const messages = isStream ? events(text) : [JSON.parse(text)];
  const answer = messages.find((message) => message.id === id);
  if (!answer) throw new Error(`no response to ${method}: HTTP ${response.status} ${text}`);
  return answer;
}

/** The result of a request that must succeed. */
export async function ask(url, method, params = {}, capabilities = {}) {
  const answer = await send(url, method, framed(params, capabilities));
  if (answer.error) throw new Error(`${method}: ${JSON.stringify(answer.error)}`);
  return answer.result;
}

/** The messages of a finished event stream. */
function events(text) {
  return text
    .split(/\r?\n\r?\n/)
    .map((event) =>
      event
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n"),
    )
    .filter((data) => data !== "")
    .map((data) => JSON.parse(data));
}

// What the JavaScript peers share: how they speak to the test that started them.
//
// A peer prints one JSON object a line, each with a `step`, and exits non-zero when anything it did
// not expect happens. A server ends when its standard input does, so that none outlives its test.
import http from "node:http";

export const VERSION = "2026-07-28";

/** Reports one finished step. */
export const say = (step, fields = {}) => console.log(JSON.stringify({ step, ...fields }));

/** The text blocks of a tool result, joined. */
export const textOf = (result) =>
  result.content
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n");

/** Ends the process once whoever started it has gone. */
export function endWithStdin() {
  process.stdin.on("end", () => process.exit(0)).resume();
}

/** Serves `handler(request, response)` on a free loopback port; resolves with its origin. */
export function listen(handler) {
  const server = http.createServer(handler);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
}

/** Lets a fetch-shaped handler answer a request of `node:http`, streams and disconnects included. */
export function fromFetch(fetchHandler) {
  return async (incoming, outgoing) => {
    const gone = new AbortController();
    outgoing.on("close", () => gone.abort());
    const body = [];
    for await (const chunk of incoming) body.push(chunk);
    const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
      method: incoming.method,
      headers: Object.entries(incoming.headers).flatMap(([name, value]) => [[name, String(value)]]),
      body: body.length ? Buffer.concat(body) : undefined,
      signal: gone.signal,
    });
    const response = await fetchHandler(request);
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    try {
      for await (const chunk of response.body ?? []) outgoing.write(chunk);
    } catch (error) {
      if (!gone.signal.aborted) throw error;
    }
    outgoing.end();
  };
}

// Stands in for the API of a model: `model.mjs TOOL ARGUMENTS`. Asked something, it wants TOOL called
// once, and then repeats what the tool said. Nothing here thinks, and nothing leaves this machine.
import { endWithStdin, listen, say } from "./peer.mjs";

const [tool, input] = process.argv.slice(2);

/** The text of a tool's result in the conversation so far, if there is one. */
function toolSaid({ messages = [] }) {
  const blocks = messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  const result = blocks.findLast((block) => block.type === "tool_result");
  if (!result) return undefined;
  const { content = "" } = result;
  return typeof content === "string" ? content : content.map(({ text = "" }) => text).join("");
}

/** What the model says to a request; only requests that offer the tool get it called. */
function answerTo(request) {
  const said = toolSaid(request);
  const offered = request.tools?.some(({ name }) => name === tool);
  if (said === undefined && offered)
    return { type: "tool_use", id: "toolu_1", name: tool, input: JSON.parse(input) };
  return { type: "text", text: said === undefined ? "no such tool" : `the tool said: ${said}` };
}

const message = (model, content, stop_reason) => ({
  id: "msg_1",
  type: "message",
  role: "assistant",
  model,
  content,
  stop_reason,
  stop_sequence: null,
  usage: { input_tokens: 1, output_tokens: 1 },
});

function* events(model, block, stop_reason) {
  yield { type: "message_start", message: message(model, [], null) };
  const start = block.type === "text" ? { ...block, text: "" } : { ...block, input: {} };
  yield { type: "content_block_start", index: 0, content_block: start };
  const delta =
    block.type === "text"
      ? { type: "text_delta", text: block.text }
      : { type: "input_json_delta", partial_json: JSON.stringify(block.input) };
  yield { type: "content_block_delta", index: 0, delta };
  yield { type: "content_block_stop", index: 0 };
  const usage = { output_tokens: 1 };
  yield { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage };
  yield { type: "message_stop" };
}

const origin = await listen(async (request, response) => {
  const body = [];
  for await (const chunk of request) body.push(chunk);
  const json = { "content-type": "application/json" };
  if (request.method !== "POST" || !request.url.startsWith("/v1/messages"))
    return response.writeHead(404, json).end("{}");
  const asked = JSON.parse(Buffer.concat(body).toString());
  if (request.url.includes("count_tokens"))
    return response.writeHead(200, json).end('{"input_tokens":1}');
  const block = answerTo(asked);
  const reason = block.type === "text" ? "end_turn" : "tool_use";
  if (!asked.stream) {
    const whole = message(asked.model, [block], reason);
    return response.writeHead(200, json).end(JSON.stringify(whole));
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of events(asked.model, block, reason))
    response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  return response.end();
});
say("listening", { url: origin });
endWithStdin();

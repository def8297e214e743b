// Starts a Waypost of its own in front of one server, for scenarios that another program begins.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const BINARY = process.env.WAYPOST_BIN;
/** The log line that tells what port 0 became. */
const LISTENING = /\bmcp=(127\.0\.0\.1:\d+) admin=(127\.0\.0\.1:\d+)/;

const config = (upstream, state) => `
listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstreams:
  scenario:
    url: ${upstream}
    prefix: ""
    required: true
state: { path: ${join(state, "waypost.db")} }
`;

/** Resolves once `/readyz` says so, with the endpoint's URL and a way to stop it. */
export async function startGateway(upstream) {
  if (!BINARY) throw new Error("WAYPOST_BIN is not set\n\nhint: run `cargo xtask test`");
  const home = mkdtempSync(join(tmpdir(), "waypost-"));
  const file = join(home, "waypost.yaml");
  writeFileSync(file, config(upstream, home));
  const child = spawn(BINARY, ["serve", "--config", file], { stdio: ["ignore", "pipe", "pipe"] });
  const log = [];
  const addresses = boundAddresses(child, log);
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`the gateway ended with ${code}:\n${log.join("\n")}`);
  });
  const stop = async () => {
    ended.catch(() => {});
    child.kill("SIGTERM");
    await ended.catch(() => {});
    rmSync(home, { recursive: true });
  };
  try {
    const { mcp, admin } = await Promise.race([addresses, ended]);
    await Promise.race([ready(`${admin}/readyz`, log), ended]);
    return { url: mcp, admin, log, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The addresses the gateway says it has bound, port 0 resolved. */
function boundAddresses(child, log) {
  return new Promise((resolve) => {
    const read = (line) => {
      log.push(line);
      const [, mcp, admin] = line.match(LISTENING) ?? [];
      if (admin) resolve({ mcp: `http://${mcp}/mcp`, admin: `http://${admin}` });
    };
    for (const stream of [child.stdout, child.stderr]) createInterface(stream).on("line", read);
  });
}

async function ready(url, log) {
  for (const began = Date.now(); Date.now() - began < 20_000; ) {
    if ((await fetch(url)).ok) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`${url} did not turn ready in 20 s:\n${log.join("\n")}`);
}

// Lets the scripts of this folder import packages that are installed under target/interop:
// `node --import ./resolve.mjs script.mjs` with WAYPOST_INTEROP set. Nothing is installed beside
// the sources, and no copy of a script can go stale.
import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";

const home = process.env.WAYPOST_INTEROP;
if (!home) {
  console.error("WAYPOST_INTEROP is not set\n\nhint: run `cargo xtask test`");
  process.exit(1);
}
const parentURL = pathToFileURL(`${home}/npm/package.json`).href;
const isBare = (specifier) => !/^(\.|\/|node:|file:|data:)/.test(specifier);

registerHooks({
  resolve(specifier, context, next) {
    const ours = !context.parentURL?.includes("/node_modules/");
    return next(specifier, ours && isBare(specifier) ? { ...context, parentURL } : context);
  },
});

//! What the demo says when it is up.

use waypost_wire::version;

use super::Gateway;

pub(super) fn welcome(gateway: &Gateway) -> String {
    let (url, admin) = (gateway.daemon.url(), gateway.daemon.admin);
    format!(
        "Waypost with two demo servers behind it: {url}\n\
         Upstreams, health and metrics:           http://{admin}/api/v1/upstreams\n\
         \n\
         For Claude Code:\n\
         \n\
         \x20 claude mcp add --transport http waypost {url}\n\
         \n\
         For Cursor, in `.cursor/mcp.json`:\n\
         \n\
         \x20 {{ \"mcpServers\": {{ \"waypost\": {{ \"url\": \"{url}\" }} }} }}\n\
         \n\
         A first call, to paste into another terminal:\n\
         \n\
         {}\n\
         \n\
         `waypost demo --walkthrough` shows more. Ctrl-C ends it.",
        first_call(&url)
    )
}

/// A complete `tools/call` of the stateless protocol.
pub(crate) fn first_call(url: &str) -> String {
    let version = version::MODERN;
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"tasks_greet","arguments":{{"name":"Ada"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    format!(
        "curl -sS {url} \\\n\
         \x20 -H 'Content-Type: application/json' \\\n\
         \x20 -H 'Accept: application/json, text/event-stream' \\\n\
         \x20 -H 'MCP-Protocol-Version: {version}' \\\n\
         \x20 -H 'Mcp-Method: tools/call' \\\n\
         \x20 -H 'Mcp-Name: tasks_greet' \\\n\
         \x20 -d '{message}'"
    )
}

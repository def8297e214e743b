//! The words of MCP over untouched bytes.

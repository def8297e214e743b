//! Reaches servers: Streamable HTTP and stdio.

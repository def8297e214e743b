"""What the Python peers share: how they speak to the test that started them.

A peer prints one JSON object a line, each with a `step`, and exits non-zero when anything it did not
expect happens. A server ends when its standard input does, so that none outlives its test.
"""

import json
import os
import socket
import sys
import threading
from typing import Any


def say(step: str, **fields: Any) -> None:
    """Reports one finished step."""
    print(json.dumps({"step": step, **fields}), flush=True)


def text_of(result: Any) -> str:
    """The text blocks of a tool result, joined."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def listener() -> socket.socket:
    """A bound loopback socket, reported as the URL of the endpoint it will serve."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    return sock


def url_of(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"


def end_with_stdin() -> None:
    """Ends the process once whoever started it has gone."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()

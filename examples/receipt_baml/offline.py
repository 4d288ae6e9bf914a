"""Runs a command with a model on loopback: ``python offline.py promptgraft optimize``.

The model reads receipts, and follows only what the prompt and the descriptions say. It speaks
OpenAI's Chat Completions, plain and streamed, at the address in ``RECEIPT_URL``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KINDS = ("FOOD", "TRAVEL", "OFFICE")


def read(asked: str) -> dict[str, object]:
    """Return what the model reads from a receipt, as far as it was told how."""
    told, _, receipt = asked.partition("RECEIPT:")
    lines = [line.strip() for line in receipt.strip().splitlines()]
    amounts = [line.rsplit(" ", 1) for line in lines if re.search(r" \d+\.\d\d$", line)]
    wanted = "total" if re.search(r"with tax|after tax|paid", told) else "subtotal"
    day, month, year = lines[1].split(".")
    return {
        "merchant": lines[0],
        "date": f"{year}-{month}-{day}" if re.search("ISO|YYYY", told) else lines[1],
        "total": next(float(price) for name, price in amounts if name.lower() == wanted),
        "category": category(told, receipt),
    }


def category(told: str, receipt: str) -> str:
    """Return the first kind of which a word in its description stands in the receipt."""
    for kind in KINDS:
        described = re.search(rf"^- {kind}: (.*)$", told, re.MULTILINE)
        words = re.findall("[a-z]+", described[1].lower()) if described else []
        if any(word in receipt.lower() for word in words):
            return kind
    return KINDS[0]


def asked_in(body: dict[str, Any]) -> str:
    """Return the texts of the messages of a request."""
    contents = [message["content"] for message in body["messages"]]
    parts = [[{"text": one}] if isinstance(one, str) else one for one in contents]
    return "\n".join(part["text"] for one in parts for part in one)


class Model(BaseHTTPRequestHandler):
    """Answers with what it reads."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = asked_in(body)
        answer = json.dumps(read(asked))
        head = {"id": "1", "created": 1, "model": "reader"}
        if body.get("stream"):
            delta = {"index": 0, "delta": {"role": "assistant", "content": answer}}
            end: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
            head["object"] = "chat.completion.chunk"
            chunks = [json.dumps({**head, "choices": [one]}) for one in (delta, end)]
            reply = "".join(f"data: {one}\n\n" for one in [*chunks, "[DONE]"])
            kind = "text/event-stream"
        else:
            message = {"role": "assistant", "content": answer}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            tokens = len(asked) // 4, len(answer) // 4
            usage = dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True))
            whole = {**head, "object": "chat.completion", "choices": [choice]}
            reply = json.dumps({**whole, "usage": {**usage, "total_tokens": sum(tokens)}})
            kind = "application/json"
        content = reply.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    # `promptgraft` and `baml-cli` are those beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.update(RECEIPT_URL=address, PATH=path)
    ended = subprocess.run(sys.argv[1:], check=False)  # noqa: S603 - what the user has typed
    server.shutdown()
    server.server_close()
    sys.exit(ended.returncode)

"""A model on loopback that speaks OpenAI's Chat Completions, plain and streamed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from servers.threaded import QuietHandler, ThreadedServer

Body = dict[str, Any]
Answer = Callable[[str], "str | int"]
"""Returns the answer to the text of a request, or the status that it is refused with."""


class Answering(ThreadedServer):
    """A server with one thread for each connection; ``with`` starts and stops it.

    Attributes:
        address: what requests go to.
        seen: what was asked, as text, in order.
        headers: the headers of the last request.
        body: the last request.
    """

    def __init__(self, answer: Answer) -> None:
        self.seen: list[str] = []
        self.headers: dict[str, str] = {}
        self.body: Body = {}
        outer = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:  # noqa: N802 - the name of http.server
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                text = asked(body)
                outer.headers, outer.body = dict(self.headers), body
                outer.seen.append(text)
                found = answer(text)
                if isinstance(found, int):
                    refused = {"error": {"message": f"no, {self.headers['Authorization']}"}}
                    self.reply(found, "application/json", json.dumps(refused).encode())
                elif body.get("stream"):
                    self.reply(200, "text/event-stream", streamed(found))
                else:
                    self.reply(200, "application/json", json.dumps(whole(found)).encode())

            def reply(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # given up by a deadline
                    self.wfile.write(content)

        super().__init__(Handler)
        self.address = f"{self.origin}/v1"


def asked(body: Body) -> str:
    """Return the texts of the messages of a request."""
    texts: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        texts += [part.get("text", "") for part in parts]
    return "\n".join(texts)


def whole(text: str) -> Body:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": usage}


def streamed(text: str) -> bytes:
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks = [
        {**_HEAD, "object": "chat.completion.chunk", "choices": [one]} for one in (first, last)
    ]
    lines = [*(json.dumps(one) for one in chunks), "[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


_HEAD: Body = {"id": "x", "created": 1, "model": "m"}

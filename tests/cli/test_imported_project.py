"""A configuration of promptfoo, from its import to a better prompt, with a model that thinks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.console import Console
from servers.threaded import QuietHandler, ThreadedServer

TAUGHT = "Maps and routes are travel, odes and rhymes poetry."
SHELVES = {"map": "travel", "route": "travel", "ode": "poetry", "rhyme": "poetry"}
GUESSES = {"map": "travel", "route": "poetry", "ode": "travel", "rhyme": "travel"}
THOUGHT = "<think>\nCooking? No.\n</think>\n\n"


class Handler(QuietHandler):
    """Answers with thoughts or in parts; right only if the prompt says which shelf is which."""

    def do_POST(self) -> None:  # noqa: N802 - the name is given by the base class
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "\n".join(message["content"] for message in body["messages"])
        reply = json.dumps(
            {
                "model": "m",
                "choices": [{"index": 0, "message": _message(text), "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


def _message(text: str) -> dict[str, object]:
    if "The part is:" in text:
        current = re.findall(r"```\w*\n(.*?)\n```", text.partition("The part is:")[2], re.DOTALL)
        changed = f"{THOUGHT}```instruction\n{current[0]}\n{TAUGHT}\n```"
        return {"role": "assistant", "content": changed}
    kind, number = re.findall(r"\b(map|route|ode|rhyme) (\d+)", text)[-1]
    shelf = (SHELVES if TAUGHT in text else GUESSES)[kind]
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": shelf}]
    content: object = parts if int(number) % 2 else f"{THOUGHT}{shelf}"
    return {"role": "assistant", "content": content}


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHELF_KEY", "k-1234567890\n")
    with ThreadedServer(Handler) as server:
        yield server.origin


def test_an_imported_configuration_goes_the_whole_way(origin: str, console: Console) -> None:
    config = {"apiBaseUrl": f"{origin}/v1", "apiKey": "{{env.SHELF_KEY}}", "temperature": 0}
    chat = [
        {"role": "system", "content": "Name the shelf of a note."},
        {"role": "user", "content": "{{note}}"},
    ]
    tests = [
        {"vars": {"note": f"{kind} {n}", "shelf": shelf}}
        for n in range(12)
        for kind, shelf in SHELVES.items()
    ]
    document = {
        "prompts": ["file://chat.json"],
        "providers": [{"id": "openai:chat:m", "config": config}],
        "defaultTest": {
            "assert": [{"type": "javascript", "value": "output.trim() === context.vars.shelf"}]
        },
        "tests": tests,
    }
    Path("promptfooconfig.yaml").write_text(json.dumps(document))
    Path("chat.json").write_text(json.dumps(chat))

    imported = console("import", "promptfooconfig.yaml")
    assert (imported.code, imported.err) == (0, "")
    assert "checked: promptgraft.yaml is valid" in imported.out
    assert "promptgraft optimize chat" in imported.out
    assert console("check").code == 0
    before = console("eval", "chat", "--split", "all")
    assert "12 of 48 answers pass" in before.out
    optimized = console("optimize", "chat", "--budget", "160")
    assert optimized.code == 0, optimized.out
    assert TAUGHT in optimized.out
    assert console("apply").code == 0
    after = console("eval", "chat", "--split", "all")
    assert "48 of 48 answers pass" in after.out

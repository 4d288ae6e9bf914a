"""What the tests of all wire formats share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_prompts import SOURCE, in_memory, write_all
from promptgraft.adapters.calling.turns import Wire
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject
from servers.shapes import misfit


def sent(body: JsonObject) -> Any:
    """Return a body as it comes out of the JSON that is sent."""
    return json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8"))


def noted(note: str) -> RenderedPrompt[Any]:
    """Return a prompt of which only the end depends on a value."""
    sections = [
        MarkdownSection(title="Rules", key="rules", template="Be kind."),
        MarkdownSection(title="Note", key="note", template="$note"),
    ]
    template = PromptTemplate[Any](ns="n", key="k", sections=sections)
    return Prompt(template).bind({"note": note}).render()


def check_overrides_reach(wire: Wire, request: type[Any], folder: Path) -> None:
    """Check that a request, which fits the SDK's type of requests, shows each kind of override."""
    store = in_memory(folder)
    write_all(store, SOURCE.prompt(store))
    body = wire.open(SOURCE.prompt(store).render())
    assert misfit(request, body) is None
    text = json.dumps(body)
    for words in (
        "Review Python code well.",
        "Search every file.",
        "A word of the code.",
        "FIXME",
        "Find injected SQL.",
        "Find leaked keys.",
        "How urgent it is.",
        "urgency",
        "Can wait.",
    ):
        assert words in text, words
    assert "Find cross-site scripting." not in text
    assert text.count("FIXME") == 1

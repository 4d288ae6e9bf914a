"""A small project whose model writes down what it is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

AGENT = """
import os
from pathlib import Path

from promptgraft import MarkdownSection, PromptTemplate, ScriptedAdapter
from promptgraft.errors import PermanentProviderError, TransientProviderError

TEMPLATE = PromptTemplate(
    ns="docs",
    key="words",
    sections=(
        MarkdownSection(title="Task", key="task", template="Repeat the word."),
        MarkdownSection(title="Word", key="word", template="$word", overridable=False),
    ),
)
CALLS = Path(__file__).with_name("calls.log")


def answer(prompt):
    word = prompt.text.split()[-1]
    with CALLS.open("a", encoding="utf-8") as file:
        file.write(word + "\\n")
    if word == "overloaded":
        raise TransientProviderError("the provider is overloaded")
    if word == "forbidden":
        raise PermanentProviderError("the key is refused")
    return word.upper() if "capital" in prompt.text else word


def adapter():
    if "WITHOUT_KEY" in os.environ:
        raise RuntimeError("no key")
    return ScriptedAdapter(answer)
"""
PROJECT = """
version: 1
prompts: {words: "agent.py:TEMPLATE"}
dataset: {path: words.jsonl, keep: [split]}
splits: {field: split}
metrics: [{name: exact}]
models: {task: {python: "agent.py:adapter"}}
workers: 2
"""


def case(word: str, *, expected: str | None = None, split: str = "test", **more: object) -> str:
    """One line of the data set; the id is the word."""
    row = {"id": word, "input": word, "expected": expected or word, "split": split, **more}
    return json.dumps(row)


WORDS = (
    case("apple"),
    case("bread", expected="BREAD", critical=True),
    case("cheese"),
    case("date", split="train"),
    case("egg", split="validation"),
)


def write_project(folder: Path, *lines: str, files: Mapping[str, str] | None = None) -> Path:
    """Write the project, with these cases or the usual ones, and other files."""
    whole = {
        "promptgraft.yaml": PROJECT,
        "agent.py": AGENT,
        "words.jsonl": "\n".join(lines or WORDS) + "\n",
        **(files or {}),
    }
    for name, text in whole.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def calls(folder: Path) -> list[str]:
    """Return the words that the model was asked for, sorted."""
    file = folder / "calls.log"
    return sorted(file.read_text("utf-8").split()) if file.exists() else []

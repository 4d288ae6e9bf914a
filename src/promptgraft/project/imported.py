"""Shared parts of the importers of other tools' files: notes, rows, prompts and models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from promptgraft.errors import DataFormatError, PromptgraftError
from promptgraft.evals.faults import CaseFaults
from promptgraft.evals.rows import Row, csv_rows, jsonl_rows
from promptgraft.project.format_models import NO_KEY
from promptgraft.project.markdown.outline import escaped
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.serde import Json, canonical_json
from promptgraft.strict.members import snake_case
from promptgraft.strict.nodes import Node, Source, read_source, read_text
from promptgraft.yaml_text import YamlDocument, YamlPath, read_yaml

CASES_FILE = "cases.jsonl"
Messages: TypeAlias = list[tuple[str, str]]
"""A prompt as messages, each a role and a Jinja template."""
_ROWS = {".csv": csv_rows, ".tsv": csv_rows, ".jsonl": jsonl_rows, ".ndjson": jsonl_rows}
_FEW = 10
GENERATION = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "reasoning_effort": "effort",
}
"""Our names of generation options, by those of other tools."""


@attrs.frozen(kw_only=True)
class ImportedProject:
    """A project made from files of another tool.

    Attributes:
        document: the contents of the project file.
        files: the contents of the files that it names, by relative path.
        notes: a line for each thing that is dropped or works differently.
    """

    document: Mapping[str, Json] = attrs.field(hash=False)
    files: Mapping[str, str]
    notes: tuple[str, ...]


@attrs.define
class Notes:
    """Notes of an import; the same note on several places is one line."""

    _places: dict[str, dict[str, None]] = attrs.field(factory=dict)

    def add(self, node: Node, text: str) -> None:
        self._places.setdefault(text, {})[node.source.line(node.path, text)] = None

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(
            f"{first}; the same in {len(more):,} more" if more else first
            for first, *more in self._places.values()
        )


def with_lines(path: Path) -> Source:
    """Read a JSON or YAML file with the line of each value."""
    source = read_source(path)
    if not source.document.lines:
        # JSON is YAML except for tabs, which JSON allows only between values.
        lines = read_yaml(path.read_text("utf-8-sig").replace("\t", " "), lambda *_: None)
        if lines is not None:
            source.document = YamlDocument(source.document.value, lines.lines, lines.key_lines)
    return source


def text_of(path: Path, node: Node) -> str:
    """Read a file that a node names; a fault is noted if it cannot be read."""
    try:
        return read_text(path, lambda _, why: node.fault(f"{path}: {why}")) or ""
    except OSError as error:
        node.fault(f"{path}: cannot be read: {error.strerror}")
        return ""


def rows_of(path: Path) -> Source:
    """Read the rows of a CSV, JSONL, JSON or YAML file as a list.

    Raises:
        DataFormatError: it cannot be read.
    """
    read = _ROWS.get(path.suffix.lower())
    if read is None:
        return with_lines(path)
    faults = CaseFaults(str(path))
    try:
        rows: list[Row] = list(read(path, faults))
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
    if faults:
        raise DataFormatError.of(faults.lines)
    lines: dict[YamlPath, int] = {(at,): row.line for at, row in enumerate(rows)}
    return Source(str(path), YamlDocument([row.value for row in rows], lines, {}))


def name_of(
    text: str, taken: Sequence[str] | Mapping[str, object] = (), *, joint: str = "-"
) -> str:
    """Turn a text into a valid name that is not taken."""
    # Names become parts of paths and keys of sections.
    name = re.sub(r"[^a-z0-9]+", joint, text.lower()).strip(joint)[:40] or "x"
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}{joint}{number}"
    return found


def template(text: str) -> PromptTemplate[object]:
    """Return a Jinja template as a prompt of one section.

    Raises:
        PromptDefinitionError: the template is invalid.
    """
    section = MarkdownSection(title="", key="text", template=text, syntax="jinja")
    return PromptTemplate[object](ns="imported", key="text", sections=(section,))


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that a Jinja template reads; raises as :func:`template`."""
    return tuple(name for _, one in template(text).walked for name in one.source.reads)


def filled(text: str, values: Mapping[str, Json]) -> str | None:
    """Fill in the placeholders of a text; return None if it cannot be rendered."""
    try:
        return Prompt(template(text)).bind(dict(values)).render().text if "{" in text else text
    except PromptgraftError:
        return None


def texts_in(message: Node) -> list[str | None]:
    """Return the texts of the parts of a message; None for a part that is not text."""
    content = message.member("content").value
    parts = content if isinstance(content, list) else [{"text": content}]
    found = [part.get("text") if isinstance(part, dict) else None for part in parts]
    return [text if isinstance(text, str) else None for text in found]


def prompt_file(key: str, messages: Messages, choices: Sequence[str] = ()) -> str:
    """Return a prompt as a Markdown file.

    If there are several messages, those with placeholders are frozen: they hold the input.
    """
    told = json.dumps(list(choices), ensure_ascii=False)
    output = f"output:\n  choices: {told}\n" if choices else ""
    head = f"---\nns: imported\nkey: {key}\nsyntax: jinja\n{output}---\n"
    if len(messages) == 1:
        return f"{head}{escaped(messages[0][1])}\n"
    parts, keys = [], list[str]()
    for role, text in messages:
        keys.append(name_of(role, keys))
        # What holds the input is no instruction: a search would only learn to quote it.
        frozen = " .frozen" if placeholders(text) else ""
        parts.append(f"# {{#{keys[-1]}{frozen}}}\n\n{escaped(text)}\n")
    return head + "\n".join(parts)


def lines_of(cases: Sequence[Mapping[str, Json]]) -> str:
    """Return cases as a JSONL file."""
    return "".join(f"{json.dumps(case, ensure_ascii=False)}\n" for case in cases)


def splits_of(cases: Sequence[Mapping[str, Json]], node: Node) -> Iterator[tuple[str, Json]]:
    """Yield ``splits`` if there are too few cases for the default."""
    # Splits keep equal questions in one set, whatever their case.
    questions = {canonical_json(case["input"]).casefold() for case in cases}
    if len(questions) < 2:
        node.fault(f"expected at least two cases with different inputs, found {len(questions)}")
    if len(questions) < _FEW:
        yield "splits", {"ratio": {"train": 0.5, "validation": 0.5}}


OFFLINE: Json = {"provider": "offline"}
_OFFLINE = "the embedded offline model takes the place of {}: name a model in `models.task`"
_PROVIDERS: Mapping[str, tuple[str, ...]] = {  # ours, with address and key where they are fixed
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "azure": ("azure",),
    "azureopenai": ("azure",),
    "bedrock": ("bedrock",),
    "google": ("gemini",),
    "vertex": ("vertex",),
    "ollama": ("openai", "http://localhost:11434/v1", NO_KEY),
    "openrouter": ("openai", "https://openrouter.ai/api/v1", "${OPENROUTER_API_KEY}"),
}
_INTERFACES = ("chat", "messages", "responses", "completion")


def read_provider(node: Node, notes: Notes) -> Json:
    """Convert a provider of promptfoo to a model of a project; keys are not copied."""
    members = node.members()
    told, config = node.value, node.member("config")
    if isinstance(told, dict) and "id" not in told and len(members) == 1:
        [(told, config)] = ((name, one.member("config")) for name, one in members.items())
    elif isinstance(told, dict):
        told = told.get("id")
        for key in members.keys() - {"id", "config", "label"}:
            notes.add(members[key], f"`{key}` of a provider is left out: `models` has no such key")
    kind, *rest = str(told).split(":")
    known = dict(zip(("provider", "base_url", "api_key"), _PROVIDERS.get(kind, ()), strict=False))
    model = ":".join(rest[1:] if len(rest) > 1 and rest[0] in _INTERFACES else rest)
    if not known or not model or (kind == "vertex" and not model.startswith("claude")):
        notes.add(node, _OFFLINE.format(f"`{told}`"))
        return OFFLINE
    found: dict[str, Json] = {**known, "model": model}
    for key, one in config.members().items():
        match key:
            case "apiKeyEnvar":
                found["api_key"] = f"${{{one.value}}}"
            case "apiBaseUrl" | "apiHost":
                host = str(one.value)
                found["base_url"] = host if "://" in host else f"https://{host}"
            case _ if (ours := GENERATION.get(snake_case(key))) is not None:
                found[ours] = one.value
            case _:
                what = (
                    "a key is not copied: export it"
                    if key == "apiKey"
                    else "left out: `models` has no such key; `extra_body` sends more"
                )
                notes.add(one, f"`{key}`: {what}")
    return found

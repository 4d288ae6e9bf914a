"""What the importers of other tools' files write: names, prompts and cases."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias, TypedDict

import attrs

from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.ground.entry_points import Group
from promptgraft.ground.serde import Json, canonical_json
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import counted
from promptgraft.project.foreign import DATA, ROWS, Foreign, Notes
from promptgraft.project.markdown.outline import escaped
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate

CASES_FILE = "cases.jsonl"
Messages: TypeAlias = list[tuple[str, str]]
"""A prompt as messages, each a role and a Jinja template."""
_FEW = 10


@attrs.frozen(kw_only=True)
class ImportedProject:
    """A project made from files of another tool.

    Attributes:
        document: the contents of the project file.
        files: the contents of the files that it names, by relative path.
        notes: a line for each thing that is dropped or works differently.
        unwritten: what the user has to write before the project can run.
    """

    document: Mapping[str, Json] = attrs.field(hash=False)
    files: Mapping[str, str]
    notes: tuple[str, ...]
    unwritten: tuple[str, ...] = ()


class ImportOptions(TypedDict):
    """The options of ``promptgraft import`` that belong to one importer or another."""

    train: str | None
    validation: str | None
    test: str | None
    agent: str | None
    prompts: tuple[str, ...]
    callbacks: str | None
    fields: tuple[str, ...]
    root: str | None
    offline: bool


class Importer(ABC):
    """Converts the files of another tool into a project.

    A package registers a subclass under the entry point group ``promptgraft.importers``.

    Attributes:
        source: what it reads, for messages: "a configuration of promptfoo".
        takes: the options that it uses, by their names in :class:`ImportOptions`.
        names_code: whether its projects name code of the user, which an import must not run.
    """

    source: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ()
    names_code: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def recognizes(cls, path: Path, value: Json) -> float:
        """Return how likely a file is one of this tool, from 0 to 1.

        Args:
            path: the file.
            value: its contents as plain data; None for tables and lists of lines, which are not
                read for that.
        """

    @classmethod
    @abstractmethod
    def convert(cls, path: Path, options: ImportOptions, notes: Notes) -> ImportedProject:
        """Convert a file, without running code that it names.

        Raises:
            DataFormatError: all faults, one line each.
            ConfigError: an option is missing or of no use.
        """


IMPORTERS = Group("promptgraft.importers", "importer", Importer)  # type: ignore[type-abstract]  # mypy#4717


def importer_of(path: Path) -> type[Importer]:
    """Return the importer for a file.

    Raises:
        DataFormatError: the file cannot be read.
        ConfigError: no importer recognizes it, or one cannot be imported.
    """
    is_table = path.suffix.lower() in ROWS
    # Other files would be read as YAML, whose faults say nothing about them.
    is_data = not is_table and path.suffix.lower() in ("", *DATA)
    value = Foreign.of(path).source.document.value if is_data else None
    importers = [IMPORTERS.load(name) for name in IMPORTERS.names]
    likely = [(importer.recognizes(path, value), importer) for importer in importers]
    most = max((likelihood for likelihood, _ in likely), default=0)
    if most <= 0:
        sources = " or ".join(importer.source for importer in importers)
        raise ConfigError(
            f"{path}: expected {sources or 'an importer'}, found none of them; `promptgraft init` "
            "makes a project for cases of your own"
        )
    return next(importer for likelihood, importer in likely if likelihood == most)


def name_of(
    text: str, taken: Sequence[str] | Mapping[str, object] = (), *, joint: str = "-"
) -> str:
    """Turn a text into a valid name that is not taken."""
    # Names become parts of paths and keys of sections.
    name = re.sub(r"[^a-z0-9]+", joint, text.lower()).strip(joint)[:40] or "x"
    free_name, number = name, 1
    while free_name in taken:
        number += 1
        free_name = f"{name}{joint}{number}"
    return free_name


def template(text: str) -> PromptTemplate[object]:
    """Return a Jinja template as a prompt of one section.

    Raises:
        PromptDefinitionError: the template is invalid.
    """
    section = MarkdownSection(title="", key="text", template=text, syntax="jinja")
    return PromptTemplate[object](ns="imported", key="text", sections=(section,))


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that a Jinja template reads; raises as :func:`template`."""
    return tuple(name for _, section in template(text).walked for name in section.source.reads)


def filled(text: str, values: Mapping[str, Json]) -> str | None:
    """Fill in the placeholders of a text; return None if it cannot be rendered."""
    try:
        return Prompt(template(text)).bind(dict(values)).render().text if "{" in text else text
    except PromptgraftError:
        return None


def parts_of(message: Node) -> list[Mapping[str, Json]]:
    """Return the parts of a message; a content that is one text is one part."""
    content = message.member("content").value
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part if isinstance(part, dict) else {} for part in parts]


def image_part(place: str) -> Json:
    """Return the image at a path or an address as a case holds it."""
    if place.startswith(("data:", "http:", "https:")):
        return {"type": "image_url", "image_url": place}
    return {"type": "image", "path": place}


def prompt_file(key: str, messages: Messages, choices: Sequence[str] = ()) -> str:
    """Return a prompt as a Markdown file.

    Several messages become sections with their roles. Those of users with placeholders are frozen:
    they hold the input.
    """
    keys: list[str] = []
    for role, _ in messages:
        keys.append(name_of(role, keys))
    head = ["---", "ns: imported", f"key: {key}", "syntax: jinja"]
    if choices:
        head += ["output:", f"  choices: {json.dumps(list(choices), ensure_ascii=False)}"]
    if len(messages) == 1:
        return "\n".join([*head, "---", escaped(messages[0][1]), ""])
    # A request needs a message of the user.
    if any(role != "system" for role, _ in messages):
        head.append("roles:")
        for section, (role, _) in zip(keys, messages, strict=True):
            head.append(f"  {section}: {'system' if role == 'system' else 'user'}")
    parts = []
    for section, (role, text) in zip(keys, messages, strict=True):
        # What holds the input is no instruction: a search would only learn to quote it.
        frozen = " .frozen" if role != "system" and placeholders(text) else ""
        parts.append(f"# {{#{section}{frozen}}}\n\n{escaped(text)}\n")
    return "\n".join([*head, "---", "\n".join(parts)])


def lines_of(cases: Sequence[Mapping[str, Json]]) -> str:
    """Return cases as a JSONL file."""
    return "".join(f"{json.dumps(case, ensure_ascii=False)}\n" for case in cases)


def questions_in(cases: Sequence[Mapping[str, Json]]) -> int:
    """Return the number of different inputs."""
    # Splits keep equal questions in one set, whatever their case.
    return len({canonical_json(case["input"]).casefold() for case in cases})


def splits_of(
    cases: Sequence[Mapping[str, Json]], node: Node, notes: Notes
) -> Iterator[tuple[str, Json]]:
    """Yield ``splits`` if there are too few cases for the default."""
    questions = questions_in(cases)
    if cases and questions < 2:
        what = f"{counted(questions, 'case')} is too few for a search, which learns from some"
        notes.add(node, f"{what} and compares on others: add lines to {CASES_FILE}")
    if questions < _FEW:
        yield "splits", {"ratio": {"train": 0.5, "validation": 0.5}}


OFFLINE: Json = {"provider": "offline"}
USUAL: Json = {"provider": "openai", "model": "gpt-6-luna"}
"""The model of a project whose source names none."""
NO_MODEL = "no model is named: `openai/gpt-6-luna` answers; name yours in `models.task`"
"""The note on a source that names no model, whose project has ``USUAL``."""
GENERATION = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "reasoning_effort": "effort",
    "region": "region",
    "project_id": "project",
}
"""Our names of generation options, by those of other tools."""

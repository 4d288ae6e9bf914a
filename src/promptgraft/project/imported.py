"""Files of other tools: which of them an import reads, and what importers write of them.

Reading is bounded, and faults name their places. Written are names, prompts and cases.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias, TypedDict

import attrs

from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.evals.rows import CaseFaults, Row, jsonl_rows
from promptgraft.evals.tables import csv_rows
from promptgraft.ground.entry_points import Group
from promptgraft.ground.files import as_path, is_file
from promptgraft.ground.foreign_yaml import read_foreign_yaml
from promptgraft.ground.serde import Json, canonical_json, parse_json, shown
from promptgraft.ground.strict.nodes import Node, Source, raise_lines, read_fault, read_text
from promptgraft.ground.work import WorkBudget
from promptgraft.ground.yaml_text import YamlDocument, YamlPath
from promptgraft.project.markdown.outline import escaped
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate

DATA = (".json", ".yaml", ".yml", ".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
ROWS = {".csv": csv_rows, ".tsv": csv_rows, ".jsonl": jsonl_rows, ".ndjson": jsonl_rows}


@attrs.define
class Notes:
    """Notes of an import; the same note on several places is one line."""

    _places: dict[str, dict[str, None]] = attrs.field(factory=dict)

    def add(self, node: Node, text: str) -> None:
        """Add a note on a value."""
        self._places.setdefault(text, {})[node.source.line(node.path, text)] = None

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(
            f"{first}; the same in {len(more):,} more" if more else first
            for first, *more in self._places.values()
        )


def _bounds() -> WorkBudget:
    """Return a budget that ordinary files never reach and that is spent in seconds."""
    return WorkBudget(
        cases=100_000, characters=100_000_000, iterations=1_000_000, bytes=200_000_000
    )


@attrs.define(eq=False)
class Foreign:
    """The files that one import reads, beginning with ``path``.

    Attributes:
        path: the file that the user named.
        root: the folder of all files that may be read; a file outside of it is a fault, because
            its content would be copied into the project and sent to a model.
        notes: a line for each thing that is dropped or works differently.
        budget: the work that is left.
    """

    path: Path
    root: Path
    notes: Notes = attrs.field(factory=Notes)
    budget: WorkBudget = attrs.field(factory=_bounds)
    _sources: dict[Path, Source] = attrs.field(factory=dict, init=False)
    _texts: dict[Path, str] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(
        cls, path: str | Path, *, root: Path | None = None, notes: Notes | None = None
    ) -> Foreign:
        """Return the files around ``path``; ``root`` is by default its repository or folder."""
        path = as_path(path)
        folder = path.resolve().parent
        tops = (parent for parent in (folder, *folder.parents) if (parent / ".git").exists())
        top = next(tops, folder) if root is None else root.resolve()
        return cls(path, top, Notes() if notes is None else notes)

    @property
    def source(self) -> Source:
        """The file that the user named."""
        return self.opened(self.path)

    def opened(self, path: Path) -> Source:
        """Read a file of data: an object, or the rows of a table as a list.

        Raises:
            DataFormatError: it cannot be read or parsed.
        """
        if path not in self._sources:
            self._spend(path)
            self._sources[path] = _read(path, self.budget)
        return self._sources[path]

    def text(self, path: Path, node: Node) -> str:
        """Return the text of a file that a node names; a fault is noted if it cannot be read."""
        if path not in self._texts:
            try:
                self._spend(path)
                text = read_text(path, lambda _, why: node.fault(f"{path}: {why}"))
            except OSError as error:
                node.fault(str(read_fault(path, error)))
                text = ""
            self._texts[path] = text or ""
        return self._texts[path]

    def named(self, node: Node, name: str) -> list[Path]:
        """Return the files that a path or a pattern stands for; a fault is noted if none do."""
        name = name.removeprefix("file://")
        matching = set(name) & set("*?[") and not Path(name).is_absolute()
        paths = list(self._matches(name, node) if matching else self._at(name, node))
        if not paths:
            here = node.source.name or "here"
            what = "files" if matching else "a file"
            node.fault(f"expected {what}, found none at {shown(name)}; paths begin at {here}")
        return [path for path in paths if self._is_allowed(path, node)]

    def has(self, node: Node, name: str) -> bool:
        """Return whether there is a file of this name."""
        return any(self._at(name, node))

    def _bases(self, node: Node) -> list[Path]:
        # Other tools are not of one mind whether paths begin at the first file or at this one.
        return list(dict.fromkeys((self.path.parent, Path(node.source.name).parent)))

    def _at(self, name: str, node: Node) -> Iterator[Path]:
        paths = (base / name for base in self._bases(node))
        yield from [path for path in paths if is_file(path)][:1]

    def _matches(self, name: str, node: Node) -> list[Path]:
        for base in self._bases(node):
            paths: list[Path] = []
            for path in base.glob(name):
                self.budget.spend("iterations", 1, node.source.line(node.path, shown(name)))
                if is_file(path):
                    paths.append(path)
            if paths:
                return sorted(paths)
        return []

    def _is_allowed(self, path: Path, node: Node) -> bool:
        whole = path.resolve()
        if not whole.is_relative_to(self.root):
            node.fault(
                f"{path} lies outside of {self.root}, and would be copied into the project and "
                "sent to a model; move it there, or widen the import with `--root FOLDER`"
            )
            return False
        if not whole.is_relative_to(self.path.resolve().parent):
            self.notes.add(node, f"{path} is read, which lies outside of the folder of {self.path}")
        return True

    def _spend(self, path: Path) -> None:
        try:
            size = path.stat().st_size
        except OSError as error:
            raise read_fault(path, error) from None
        self.budget.spend("bytes", size, str(path))

    def free(self, name: str) -> str:
        """Return a file name beside ``path`` that is not taken, such as ``cases-2.jsonl``."""
        stem, dot, suffix = name.rpartition(".")
        joint = "_" if suffix == "py" else "-"  # a module has to be an identifier
        free_name, number = name, 1
        # `lexists`, because a dangling link takes a name too.
        while os.path.lexists(self.path.parent / free_name):
            number += 1
            free_name = f"{stem}{joint}{number}{dot}{suffix}"
        return free_name

    def raise_all(self) -> None:
        """Raise a ``DataFormatError`` with the first faults of all files, if there are any."""
        faults = (fault for source in self._sources.values() for fault in source.faults)
        raise_lines(str(self.path), faults)


def _read(path: Path, budget: WorkBudget) -> Source:
    if read := ROWS.get(path.suffix.lower()):
        faults = CaseFaults(str(path))
        try:
            rows: list[Row] = list(read(path, faults))
        except OSError as error:
            raise read_fault(path, error) from None
        faults.raise_all()
        budget.spend("iterations", len(rows), str(path))
        lines: dict[YamlPath, int] = {(at,): row.line for at, row in enumerate(rows)}
        return Source(str(path), YamlDocument([row.value for row in rows], lines, {}))
    source = Source(str(path))
    try:
        text = read_text(path, source.note)
    except OSError as error:
        raise read_fault(path, error) from None
    source.raise_all()
    if text is None:
        return source
    if path.suffix.lower() == ".json":
        source.document = _with_lines(parse_json(text, where=str(path)), text, budget)
    else:
        source.document = read_foreign_yaml(text, source.note, budget) or source.document
        source.raise_all()
    return source


def _with_lines(value: Json, text: str, budget: WorkBudget) -> YamlDocument:
    # JSON is YAML except for tabs, which JSON allows only between values.
    document = read_foreign_yaml(text.replace("\t", " "), lambda *_: None, budget)
    if document is None:
        return YamlDocument(value, {}, {})
    return attrs.evolve(document, value=value)


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
    text: str, used_names: Sequence[str] | Mapping[str, object] = (), *, joint: str = "-"
) -> str:
    """Turn a text into a valid name that is not taken."""
    # Names become parts of paths and keys of sections.
    name = re.sub(r"[^a-z0-9]+", joint, text.lower()).strip(joint)[:40] or "x"
    free_name, number = name, 1
    while free_name in used_names:
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
        # A section with the input is no instruction: a search would only learn to quote it.
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
        subject = "1 case" if len(cases) == 1 else f"1 question in {len(cases):,} cases"
        what = f"{subject} is too few for a search, which learns from some"
        notes.add(node, f"{what} and compares on others: add lines to {CASES_FILE}")
    if questions < _FEW:
        yield "splits", {"ratio": {"train": 0.5, "validation": 0.5}}


OFFLINE: Json = {"provider": "offline"}
USUAL: Json = {"provider": "openai", "model": "gpt-6-luna"}
"""The model of a project whose source names none."""
USUAL_NAME = "openai/gpt-6-luna"
"""The same as the short form of project files."""
NO_MODEL = f"no model is named: `{USUAL_NAME}` answers; name yours in `models.task`"
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
    "api_version": "api_version",
}
"""Our names of generation options, by those of other tools."""

"""Files of other tools: which of them an import reads, within which bounds, and their faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.faults import CaseFaults
from promptgraft.evals.rows import Row, csv_rows, jsonl_rows
from promptgraft.ground.files import as_path, is_file
from promptgraft.ground.serde import Json, parse_json, shown
from promptgraft.ground.strict.nodes import Node, Source, raise_lines, read_text
from promptgraft.ground.work import WorkBudget
from promptgraft.ground.yaml_text import YamlDocument, YamlPath, read_foreign_yaml

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
                node.fault(f"{path}: cannot be read: {error.strerror}")
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
            raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
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
            raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
        faults.raise_all()
        budget.spend("iterations", len(rows), str(path))
        lines: dict[YamlPath, int] = {(at,): row.line for at, row in enumerate(rows)}
        return Source(str(path), YamlDocument([row.value for row in rows], lines, {}))
    source = Source(str(path))
    try:
        text = read_text(path, source.note)
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
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

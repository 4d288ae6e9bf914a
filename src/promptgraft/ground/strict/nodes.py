"""Values with their places in a file, and the faults found there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground import yaml_text
from promptgraft.ground.files import is_file
from promptgraft.ground.serde import Json, did_you_mean, is_unicode, parse_json, shown, without_keys
from promptgraft.ground.yaml_text import Note, YamlDocument, YamlPath, read_yaml

MOST_SHOWN = 20
"""Faults of a source that are listed; further ones are only counted."""

# The last line about a file with very many faults.
_MORE = re.compile(r": and ([0-9,]+) more$")
_ADDRESS = re.compile(r"[a-z]{2,}:/")  # a path has one slash less
_BOM = b"\xef\xbb\xbf"
_WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_FORMATS = {
    b"version https://git-lfs": "a pointer of Git LFS; `git lfs pull` fetches the file itself",
    b"PK\x03\x04": "a ZIP archive, such as an Excel workbook; save its sheet as CSV, or unpack it",
    b"\x1f\x8b": "a gzip archive; unpack it",
}
"""What a file is instead of text, by its first bytes."""
_LONGEST_STEP = 80
_NO_DOCUMENT = YamlDocument(None, {}, {})
_MEND = "save the file as UTF-8"


def spelled(path: YamlPath) -> str:
    """Return a path as messages write it: ``metrics[0].labels``."""
    steps = (
        f"{step[:_LONGEST_STEP]}…" if isinstance(step, str) and len(step) > _LONGEST_STEP else step
        for step in path
    )
    return without_keys(yaml_text.spelled(tuple(steps)).removeprefix("."))


def found(value: object) -> str:
    """Describe a value for a message, without the content of objects and lists."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        what = "object" if isinstance(value, dict) else "list"
        return f"{'a' if value and what == 'list' else 'an'} {'' if value else 'empty '}{what}"
    return shown(value)


@attrs.define(eq=False)
class Source:
    """A document that is being read, and the faults found in it so far.

    Attributes:
        name: the file as the user named it, or another name for messages; may be empty.
        document: the plain data; if it comes from YAML, with the line of each value.
        is_trusted: whether it may name what is outside of the settings; not so what callers send.
    """

    name: str
    document: YamlDocument = _NO_DOCUMENT
    is_trusted: bool = True
    _faults: list[tuple[int, str]] = attrs.field(factory=list, init=False, repr=False)
    _wrong: set[YamlPath] = attrs.field(factory=set, init=False, repr=False)
    _settled: set[YamlPath] = attrs.field(factory=set, init=False, repr=False)

    @classmethod
    def of(cls, value: Json, name: str = "", *, is_trusted: bool = True) -> Source:
        """Return plain data as a source without lines.

        Raises:
            DataFormatError: a text that is not trusted has half of a surrogate pair.
        """
        source = cls(name, YamlDocument(value, {}, {}), is_trusted)
        if not is_trusted:
            _check_texts(source.root)
            # Further faults would repeat the text, which no terminal and no database takes.
            source.raise_all()
        return source

    def take(self, text: str, mend: Callable[[str, str], str] | None = None) -> None:
        """Parse a text as the document: as JSON if the name ends in ``.json``, else as YAML.

        Raises:
            DataFormatError: it is not JSON.
        """
        if self.name.lower().endswith(".json"):
            self.document = YamlDocument(parse_json(text, where=self.name), {}, {})
            if not is_unicode(self.document.value):
                self.note(0, "not JSON: it holds half of a surrogate pair")
        else:
            self.take_yaml(text, mend)

    def take_yaml(self, text: str, mend: Callable[[str, str], str] | None = None) -> None:
        """Parse a YAML text as the document; its faults are reported."""
        lines = ["", *text.splitlines(), ""]

        def note(number: int, fault: str) -> None:
            self.note(number, mend(lines[number], fault) if mend else fault)

        self.document = read_yaml(text, note) or self.document

    @property
    def root(self) -> Node:
        return Node(self.document.value, (), self)

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults, one line each, in the order of their lines."""
        # By line alone: faults of one line stay in the order in which they were found.
        return tuple(text for _, text in sorted(self._faults, key=lambda one: one[0]))

    def line(self, path: YamlPath, text: str) -> str:
        """Return ``text`` on one line after the place of ``path``."""
        return self._placed(self._number(path), f"{spelled(path)}: {text}" if path else text)

    def _number(self, path: YamlPath) -> int:
        return self.document.line_of(path) if self.document.lines else 0

    def _placed(self, number: int, text: str) -> str:
        place = f"{self.name}:{number}" if number and self.name else self.name
        return " ".join(f"{place}: {text}".removeprefix(": ").splitlines())

    def note(self, number: int, text: str) -> None:
        """Report a fault in a line; 0 stands for the whole source."""
        self._faults.append((number, self._placed(number, text)))
        self._wrong.add(())

    def fault(self, path: YamlPath, text: str) -> None:
        """Report a fault at ``path``."""
        if path not in self._settled:
            self._faults.append((self._number(path), self.line(path, text)))
            # Everything around it too, because nothing may be built from it.
            self._wrong.update(path[:end] for end in range(len(path) + 1))

    def settle(self, path: YamlPath, text: str) -> None:
        """Report a fault at ``path`` and ignore further ones there."""
        self.fault(path, text)
        self._settled.add(path)

    def is_right(self, path: YamlPath) -> bool:
        return path not in self._wrong

    def raise_all(self) -> None:
        """Raise a ``DataFormatError`` with the first faults, if any."""
        raise_lines(self.name, self.faults)


def count_faults(lines: Iterable[str]) -> int:
    """Return the number of faults, including those that a last line only counts."""
    counted = [_MORE.search(line) for line in lines]
    return sum(1 if more is None else int(more[1].replace(",", "")) for more in counted)


def raise_lines(name: str, lines: Iterable[str]) -> None:
    """Raise a ``DataFormatError`` with the first 20 of these faults, if any."""
    distinct = tuple(dict.fromkeys(lines))
    shown_lines = [line for line in distinct if _MORE.search(line) is None][:MOST_SHOWN]
    more = count_faults(distinct) - len(shown_lines)
    if shown_lines:
        raise DataFormatError.of((*shown_lines, *([f"{name}: and {more:,} more"] if more else [])))


@attrs.frozen
class Node:
    """A value with its place: its ``path`` from the root of ``source``."""

    value: Json = attrs.field(hash=False)
    path: YamlPath
    source: Source = attrs.field(repr=False)

    def file(self) -> Path | None:
        """Return the file that the text names, relative to the source; or report a fault."""
        path = Path(self.source.name).parent / str(self.value)
        if is_file(path):
            return path
        here = self.source.name or "here"
        self.fault(f"expected a file, found none at {shown(str(path))}; paths begin at {here}")
        return None

    def is_right(self) -> bool:
        """Return whether no fault was reported here or below."""
        return self.source.is_right(self.path)

    def member(self, key: str) -> Node:
        """Return the member of an object; its value is None if it is absent."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Node(value, (*self.path, key), self.source)

    def members(self) -> dict[str, Node]:
        """Return the members of an object that have a value."""
        value = self.value if isinstance(self.value, dict) else {}
        return {key: self.member(key) for key, member in value.items() if member is not None}

    def items(self) -> list[Node]:
        """Return the items of a list."""
        value = self.value if isinstance(self.value, list) else []
        return [Node(item, (*self.path, at), self.source) for at, item in enumerate(value)]

    def fault(self, text: str) -> None:
        """Report a fault here."""
        self.source.fault(self.path, text)

    def expected(self, what: str, hint: str = "") -> None:
        """Report that ``what`` was expected here."""
        self.fault(f"expected {what}, found {found(self.value)}{hint}")


def _check_texts(node: Node) -> None:
    """Report texts and keys with half of a surrogate pair, which JSON permits."""
    value = node.value
    texts = [value] if isinstance(value, str) else [*value] if isinstance(value, dict) else []
    if not all(map(is_unicode, texts)):
        node.fault("expected characters, found half of a surrogate pair")
        return
    for inner in [*node.members().values(), *node.items()]:
        _check_texts(inner)


def read_source(path: Path, *, mend: Callable[[str, str], str] | None = None) -> Source:
    """Read a file: JSON if its name ends in ``.json``, else YAML.

    ``mend`` rewrites the message for a line of YAML and its fault. A file that cannot be read or
    parsed raises a ``DataFormatError``.
    """
    source = Source(str(path))
    try:
        text = read_text(path, source.note)
    except OSError as error:
        raise read_fault(path, error) from None
    if text is not None:
        source.take(text, mend)
    source.raise_all()
    return source


def read_fault(path: Path, error: OSError) -> DataFormatError:
    """Return what to raise for a file that cannot be read: with the file that may be meant."""
    if isinstance(error, IsADirectoryError):
        return DataFormatError(f"{path}: expected a file, found a folder; name a file in it")
    near = "; it is an address: download it" if _ADDRESS.match(str(path)) else ""
    if isinstance(error, FileNotFoundError) and path.parent.is_dir():
        near = did_you_mean(path.name, [sibling.name for sibling in path.parent.iterdir()])
    return DataFormatError(f"{path}: cannot be read: {error.strerror}{near}")


def read_text(path: Path, note: Note) -> str | None:
    """Return the text of a file; report a fault and return None if it is not UTF-8."""
    return decoded(path.read_bytes(), 1, note)


def decoded(raw: bytes, line: int, note: Note) -> str | None:
    """Decode bytes that begin in ``line``; report a fault and return None if not UTF-8."""
    if line == 1:
        if fault := unreadable(raw):
            note(0, fault)
            return None
        raw = raw.removeprefix(_BOM)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        # Counted in characters; everything before the invalid byte can be decoded.
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        note(
            line + before.count(b"\n"),
            f"expected UTF-8, found byte {raw[error.start]:#04x} in column {column}; {_MEND}",
        )
        return None
    if (at := text.find("\0")) >= 0:
        note(line + text.count("\n", 0, at), "expected text, found a zero byte")
        return None
    return text


def unreadable(raw: bytes) -> str:
    """Return why a file with these first bytes cannot be read as text; empty if it may be."""
    if encoding := _wide(raw):
        return f"expected UTF-8, found {encoding}; {_MEND}"
    formats = (name for start, name in _FORMATS.items() if raw.startswith(start))
    return f"expected text, found {name}" if (name := next(formats, "")) else ""


def _wide(raw: bytes) -> str:
    """Return the 16-bit encoding of the bytes; empty if they have none."""
    if raw[:2] in _WIDE:
        return _WIDE[raw[:2]]
    # Every second byte of ASCII text in UTF-16 is zero.
    return "UTF-16 without a mark" if raw[:4].count(0) == 2 else ""

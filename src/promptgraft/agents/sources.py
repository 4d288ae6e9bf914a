"""Sources of an agent's texts: files, and callbacks of the user."""

from __future__ import annotations

import itertools
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs

from promptgraft.agents.writing import (
    CallbackSource,
    SourceWriter,
    WrittenText,
    may_be_run,
    settle_left_over,
)
from promptgraft.errors import ConfigError, DataFormatError, InvalidIdentifierError
from promptgraft.evals.metrics.reading import parse_path, places, spelled
from promptgraft.ground.foreign_yaml import read_foreign_yaml
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, canonical_json, parse_json, shown
from promptgraft.ground.strict.nodes import decoded, raise_lines
from promptgraft.ground.text import listed
from promptgraft.ground.work import WorkBudget
from promptgraft.ground.yaml_edits import ValuePlace, find, is_json, replaced
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.overrides.parts.validation import check_key

_logger = logging.getLogger("promptgraft")

Frozen = Literal["", "front_matter", "none"]
"""The part of a file that is not text: front matter if there is any, front matter, or nothing."""

_MOST_VALUES = 1_000_000
"""Values that aliases of one file of YAML may stand for."""
_MOST_NAMED = 10
"""Paths that a message lists."""
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)")


@attrs.frozen
class FileSource:
    """A file that holds one text.

    Attributes:
        path: the file, in UTF-8; relative to the folder of its sources.
        frozen: by default the lines between ``---`` at its start, which programs read, are no part
            of the text if there are any. ``front_matter`` requires them; ``none`` makes them text.
        at: where the text is in a file of JSON or YAML, such as ``$.predict.instructions``; nothing
            else in the file changes.

    Raises:
        ConfigError: ``frozen`` or ``at`` has another value, or both are given.
    """

    path: Path = attrs.field(converter=Path)
    frozen: Frozen = ""
    at: str = ""

    def __attrs_post_init__(self) -> None:
        if self.at and self.frozen:
            raise ConfigError("expected `frozen` or `at`, found both; a text `at` a place is alone")
        _steps(self.at)
        if self.frozen not in ("", "front_matter", "none"):
            raise ConfigError(
                f"frozen: expected `front_matter` or `none`, found {shown(self.frozen)}"
            )


def _steps(at: str) -> YamlPath:
    """Return the keys and indices that lead to a text in a file."""
    try:
        steps = parse_path(at)
    except ConfigError as error:
        raise ConfigError(f"at: {error}") from None
    path = tuple(
        step for step in steps if isinstance(step, str) or (step is not None and step >= 0)
    )
    if path != steps or (at and not path):
        raise ConfigError(f"at: expected a path to one text in the file, found {shown(at)}")
    return path


Source = FileSource | CallbackSource


@attrs.frozen(kw_only=True)
class TextFile:
    """A file as it was read, split into one text and the parts that never change.

    Attributes:
        path: its real path, with links resolved.
        name: its path as the user wrote it, for messages.
        mode: its permissions.
        raw: all of its bytes.
        text: the part that may change: without byte order mark, frozen part and surrounding line
            breaks. If all line breaks of the file are CRLF, they are LF here.
        before: everything before the text; of a text at a place, the line breaks before it there.
        after: the line breaks after the text.
        line_break: line break of the file: CRLF or LF.
        at: the keys and indices that lead to the text in a file of JSON or YAML, and the place to
            which they lead; none for a whole file.
        protected_lines: the number of lines of its front matter; 0 if it has none, or if that is
            text.
    """

    path: Path
    name: str
    mode: int
    raw: bytes = attrs.field(repr=False)
    text: str
    before: str
    after: str
    line_break: str
    protected_lines: int = 0
    at: YamlPath = ()
    place: ValuePlace | None = attrs.field(default=None, repr=False)

    def holding(self, text: str) -> bytes:
        """Return the content of the file with another text; with its own text, the bytes read."""
        if self.place is not None:
            return _holding([(self, text)])
        if text == self.text:
            return self.raw
        # A model may mix line breaks; the file gets back those that it had.
        whole = self.before + text.replace("\r\n", "\n") + self.after
        if self.line_break != "\n":
            return whole.replace("\n", self.line_break).encode()
        return (self.before + text + self.after).encode()


def _holding(texts: Sequence[tuple[TextFile, str]]) -> bytes:
    """Return the content of a file that holds these texts at their places.

    Raises:
        ConfigError: a text cannot be written without changing something else.
    """
    first, _ = texts[0]
    whole, expected_data = _lines_of(first), _data(_lines_of(first))
    # From the end, so that the places of earlier texts stay valid.
    ordered = sorted(texts, key=lambda item: _start(item[0]), reverse=True)
    for file, text in ordered:
        if text != file.text and file.place is not None:
            whole = replaced(whole, file.place, file.before + text + file.after)
            expected_data = _with(expected_data, file.at, file.before + text + file.after)
    if whole != _lines_of(first) and not _reads_as(whole, expected_data):
        raise ConfigError(
            f"{first.name}: text cannot be written at `{spelled(first.at)}` and nothing else "
            "change; write it there without anchors and aliases"
        )
    return whole.replace("\n", first.line_break).encode()


def _reads_as(text: str, data: Json) -> bool:
    try:
        return canonical_json(_data(text)) == canonical_json(data)
    except DataFormatError:
        return False


def _start(file: TextFile) -> int:
    return 0 if file.place is None else file.place.start


def _lines_of(file: TextFile) -> str:
    """Return the content of a file with the line breaks in which it is read."""
    whole = file.raw.decode()
    return whole if file.line_break == "\n" else whole.replace(file.line_break, "\n")


def _data(text: str) -> Json:
    """Return the data of JSON or YAML."""
    bare = text.removeprefix("\ufeff")
    if is_json(text):
        return parse_json(bare, where="")
    faults: list[str] = []
    budget = WorkBudget(iterations=_MOST_VALUES)
    document = read_foreign_yaml(bare, lambda line, why: faults.append(f"{line}: {why}"), budget)
    if document is None or faults:
        raise DataFormatError(faults[0])
    return document.value


def _with(data: Json, path: YamlPath, text: str) -> Json:
    """Return data with a text at a path."""
    if not path:
        return text
    step, *rest = path
    if isinstance(data, dict):
        return {k: _with(v, tuple(rest), text) if k == step else v for k, v in data.items()}
    items = data if isinstance(data, list) else []
    return [_with(item, tuple(rest), text) if n == step else item for n, item in enumerate(items)]


_SUFFIXES_OF_DATA = (".json", ".yaml", ".yml")


def _text_at(file: TextFile, path: YamlPath) -> TextFile:
    """Return the text at a place of a file that was read as a whole.

    Raises:
        DataFormatError: the file is neither JSON nor YAML, or there is no text.
    """
    whole = _lines_of(file)
    try:
        data = _data(whole)
    except DataFormatError as error:
        if file.path.suffix.lower() not in _SUFFIXES_OF_DATA:
            raise DataFormatError(
                f"{file.name}: `at` reads JSON and YAML, and this is neither; let the code read "
                "the text from a file of its own"
            ) from None
        raise DataFormatError(f"{file.name}:{error}") from None
    values = [value for _, value in places(data, path)]
    place = find(whole, path) if values else None
    if place is None or not isinstance(values[0], str):
        texts = listed([f"`{at}`" for at in itertools.islice(_texts_in(data), _MOST_NAMED)])
        content = shown(values[0]) if values else "nothing"
        raise DataFormatError(
            f"{file.name}: expected a text at `{spelled(path)}`, found {content}; texts: {texts}"
        )
    value = values[0]
    text = value.strip("\r\n")
    before = value[: value.index(text)]
    after = value[len(before) + len(text) :]
    read = attrs.evolve(file, text=text, before=before, after=after, at=path, place=place)
    # Before a run, and not in the middle of it.
    for probe in ("word", 'a "b": {c}\n\n# d\u00e9\n- e'):
        read.holding(probe)
    return read


def _texts_in(data: Json, path: YamlPath = ()) -> Iterator[str]:
    """Yield the path to each text in data."""
    if isinstance(data, str):
        yield spelled(path)
    members = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data if isinstance(data, list) else ())
    )
    for step, member in members:
        yield from _texts_in(member, (*path, step))


def read_file(path: Path, frozen: Frozen, *, name: str, at: str = "") -> TextFile:
    """Read and split a file; messages call it ``name``.

    Raises:
        DataFormatError: it cannot be read, is not UTF-8, lacks the part to be frozen, or has no
            text ``at`` its place.
        ConfigError: that text cannot be written.
    """
    if at:
        return _text_at(read_file(path, "none", name=name), _steps(at))
    try:
        real = path.resolve(strict=True)
        if not real.is_file():  # reading a pipe would block forever
            raise DataFormatError(f"{name}: expected a file, found something else; name a file")
        raw, mode = real.read_bytes(), stat.S_IMODE(real.stat().st_mode)
    except OSError as error:
        raise DataFormatError(f"{name}: cannot be read: {error.strerror}") from None
    faults: list[str] = []
    if decoded(raw, 1, lambda line, why: faults.append(f"{name}:{line}: {why}")) is None:
        raise DataFormatError(faults[0].replace(f"{name}:0:", f"{name}:"))
    # The mark is part of `before`, so that it is written back.
    whole = raw.decode()  # with its byte order mark
    # Only if all line breaks are of one kind does converting them back give the same bytes.
    is_crlf = 0 < whole.count("\r\n") == whole.count("\n")
    if is_crlf:
        whole = whole.replace("\r\n", "\n")
    start = len(whole) - len(whole.removeprefix("\ufeff"))
    front = None if frozen == "none" else _FRONT_MATTER.match(whole)
    if front is not None:
        start = front.end()
    elif frozen == "front_matter":
        raise DataFormatError(
            f"{name}:1: expected front matter between two lines `---`, found none; add it, or "
            "leave `frozen` out"
        )
    text = whole[start:].strip("\r\n")
    start = whole.index(text, start)
    # A text must not be joined to a last line `---` that has no line break.
    joint = "\n" if front is not None and not whole[:start].endswith(("\r", "\n")) else ""
    return TextFile(
        path=real,
        name=name,
        mode=mode,
        raw=raw,
        text=text,
        before=whole[:start] + joint,
        after=whole[start + len(text) :],
        line_break="\r\n" if is_crlf else "\n",
        protected_lines=0 if front is None else front[0].rstrip().count("\n") + 1,
    )


@attrs.frozen(kw_only=True)
class Sources:
    """Named texts as they were read, and where they are kept; made by :func:`read_sources`.

    Attributes:
        folder: the folder that contains every file, with links resolved.
        texts: the texts by name, of files first, then of callbacks.
        files: the files by name of their text.
        callbacks: the callbacks by name of their text.
    """

    folder: Path
    texts: Mapping[str, str]
    files: Mapping[str, TextFile]
    callbacks: Mapping[str, CallbackSource]

    def content(self, name: str, texts: Mapping[str, str]) -> str:
        """Return the whole content of the source of a text, with these ``texts`` in it."""
        text = texts.get(name, self.texts[name])
        if name not in self.files:
            return text
        file = self.files[name]
        if file.place is None:
            return file.holding(text).decode()
        beside = [
            (sibling, texts.get(key, sibling.text))
            for key, sibling in self.files.items()
            if sibling.path == file.path
        ]
        return _holding(beside).decode()

    def held(self, name: str) -> WrittenText:
        """Return a text in the form that the writer expects."""
        path = (
            self.files[name].path.relative_to(self.folder).as_posix() if name in self.files else ""
        )
        return WrittenText(name=name, path=path, old=self.content(name, {}), new=())

    def changes(self, texts: Mapping[str, str]) -> tuple[WrittenText, ...]:
        """Return the ``texts`` that differ from the sources, in the form for the writer."""
        changed = {
            # Several texts may be in one file.
            (self.files[name].path if name in self.files else name): attrs.evolve(
                self.held(name), new=(self.content(name, texts),)
            )
            for name, text in self.texts.items()
            if texts.get(name, text) != text
        }
        return tuple(changed.values())

    def writer(self) -> SourceWriter:
        """Return a writer for the sources."""
        return SourceWriter(self.folder, self.callbacks)

    def write(self, texts: Mapping[str, str], *, by: str) -> tuple[str, ...]:
        """Write texts to their sources, all or none: files first, then callbacks.

        If the process is killed, the next :func:`read_sources` completes the write.

        Args:
            texts: texts by name; the others stay unchanged.
            by: description of the writer, for messages.

        Returns:
            The files and texts that were written.

        Raises:
            ConfigError: a source has changed since it was read, or cannot be written. All sources
                are unchanged, except those that the message lists as not put back.
            JournalLockedError: another process writes the sources.
        """
        changed = self.changes(texts)
        if changed:
            writer = self.writer()
            with writer.held():
                writer.write(changed, by=by)
        return tuple(text.where for text in changed)


def _unplaced(name: str, why: str) -> str:
    return f"text `{name}`: {why}"


def read_sources(
    sources: Mapping[str, Source], *, folder: Path, line: Callable[[str, str], str] = _unplaced
) -> Sources:
    """Read every source once, after completing an interrupted write.

    Args:
        sources: at least one source, by name of its text.
        folder: the folder of the project, which must contain all files.
        line: formats a fault from the name of a text and the reason.

    Raises:
        DataFormatError: a source cannot be read, is not text, has a name that is not an
            identifier, is outside of the folder, or shares its file with another one; one line per
            fault.
        ConfigError: an interrupted write cannot be completed.
        JournalLockedError: another process writes the sources.
    """
    if not sources:
        raise DataFormatError("expected at least one text, found none; name a file or a callback")
    root = folder.resolve()
    stored = {
        name: source for name, source in sources.items() if isinstance(source, CallbackSource)
    }
    # Before reading: a source that is half written would become the text of a run.
    if settled := settle_left_over(root, stored):
        _logger.warning("%s", settled)
    files: dict[str, TextFile] = {}
    texts: dict[str, str] = {}
    faults: list[str] = []
    for name, source in sources.items():
        try:
            check_key(name, "name of a text")
            if isinstance(source, FileSource):
                files[name] = _file_of(source, root, folder)
            else:
                texts[name] = source.text()
        except (ConfigError, DataFormatError, InvalidIdentifierError) as error:
            faults.append(line(name, str(error)))
    faults.extend(line(name, why) for name, why in _twins(files))
    raise_lines(str(folder), faults)
    return Sources(
        folder=root,
        texts=FrozenMap({**{name: file.text for name, file in files.items()}, **texts}),
        files=FrozenMap(files),
        callbacks=FrozenMap(stored),
    )


def _file_of(source: FileSource, root: Path, folder: Path) -> TextFile:
    path = folder / source.path
    file_text = read_file(path, source.frozen, name=str(path), at=source.at)
    # `path` is resolved, so that a link cannot lead a write out of the folder.
    if not file_text.path.is_relative_to(root):
        raise ConfigError(
            f"{file_text.name}: expected a file in the project's folder {root}, "
            f"found {file_text.path}; move it there"
        )
    if may_be_run(file_text.path.relative_to(root)):
        raise ConfigError(
            f"{file_text.name}: expected a file of text, found one that may be run; let the code "
            "read the text from a file of its own, such as one that ends in .md or .txt"
        )
    return file_text


def _twins(files: Mapping[str, TextFile]) -> Iterator[tuple[str, str]]:
    """Yield each text whose file is that of an earlier one, however its path is written.

    Texts at different places of a file are no twins.
    """
    names_by_file: dict[tuple[int, int], dict[YamlPath, str]] = {}
    for name, file in files.items():
        # Compare inodes: paths may differ in case, links or dots.
        status = os.stat(file.path)  # noqa: PTH116
        there = names_by_file.setdefault((status.st_dev, status.st_ino), {})
        ats = (at for at in there if at == file.at or not (at and file.at))
        if (first_at := next(ats, None)) is not None:
            first = there[first_at]
            twin = f"{file.name} is the file of text `{first}` too, there {files[first].name}"
            what = "place in it" if file.at and first_at else "file"
            yield name, f"{twin}; name each {what} once"
        there.setdefault(file.at, name)

"""Sources of an agent's texts: files, and callbacks of the user."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
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
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.nodes import decoded, raise_lines
from promptgraft.overrides.parts.validation import check_key

_logger = logging.getLogger("promptgraft")

Frozen = Literal["", "front_matter", "none"]
"""The part of a file that is not text: front matter if there is any, front matter, or nothing."""

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)")


@attrs.frozen
class FileSource:
    """A file that holds one text.

    Attributes:
        path: the file, in UTF-8; relative to the folder of its sources.
        frozen: by default the lines between ``---`` at its start, which programs read, are no part
            of the text if there are any. ``front_matter`` requires them; ``none`` makes them text.

    Raises:
        ConfigError: ``frozen`` has another value.
    """

    path: Path = attrs.field(converter=Path)
    frozen: Frozen = ""

    def __attrs_post_init__(self) -> None:
        if self.frozen not in ("", "front_matter", "none"):
            raise ConfigError(
                f"frozen: expected `front_matter` or `none`, found {shown(self.frozen)}"
            )


Source = FileSource | CallbackSource


@attrs.frozen(kw_only=True)
class TextFile:
    """A file as it was read, split into its text and the parts that never change.

    Attributes:
        path: its real path, with links resolved.
        name: its path as the user wrote it, for messages.
        mode: its permissions.
        raw: all of its bytes.
        text: the part that may change: without byte order mark, frozen part and surrounding line
            breaks. If all line breaks of the file are CRLF, they are LF here.
        before: everything before the text.
        after: the line breaks after the text.
        line_break: line break of the file: CRLF or LF.
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

    def holding(self, text: str) -> bytes:
        """Return the content of the file with another text; with its own text, the bytes read."""
        if text == self.text:
            return self.raw
        # A model may mix line breaks; the file gets back those that it had.
        whole = self.before + text.replace("\r\n", "\n") + self.after
        if self.line_break != "\n":
            return whole.replace("\n", self.line_break).encode()
        return (self.before + text + self.after).encode()


def read_file(path: Path, frozen: Frozen, *, name: str) -> TextFile:
    """Read and split a file; messages call it ``name``.

    Raises:
        DataFormatError: it cannot be read, is not UTF-8, or lacks the part to be frozen.
    """
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

    def content(self, name: str, text: str) -> str:
        """Return the whole content of a source that holds ``text``."""
        return self.files[name].holding(text).decode() if name in self.files else text

    def held(self, name: str) -> WrittenText:
        """Return a text in the form that the writer expects."""
        path = (
            self.files[name].path.relative_to(self.folder).as_posix() if name in self.files else ""
        )
        return WrittenText(name=name, path=path, old=self.content(name, self.texts[name]), new=())

    def changes(self, texts: Mapping[str, str]) -> tuple[WrittenText, ...]:
        """Return the ``texts`` that differ from the sources, in the form for the writer."""
        return tuple(
            attrs.evolve(self.held(name), new=(self.content(name, texts[name]),))
            for name, text in self.texts.items()
            if texts.get(name, text) != text
        )

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
    file_text = read_file(folder / source.path, source.frozen, name=str(folder / source.path))
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
    """Yield each text whose file is that of an earlier one, however its path is written."""
    names_by_file: dict[tuple[int, int], str] = {}
    for name, file in files.items():
        # Compare inodes: paths may differ in case, links or dots.
        status = os.stat(file.path)  # noqa: PTH116
        first = names_by_file.setdefault((status.st_dev, status.st_ino), name)
        if first != name:
            twin = f"{file.name} is the file of text `{first}` too, there {files[first].name}"
            yield name, f"{twin}; name each file once"

"""Where the texts of an agent are kept: files, and a user's own functions."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

from promptgraft.agents.writing import HeldText, SourceWriter, may_be_run, settle_left_over
from promptgraft.errors import ConfigError, DataFormatError, InvalidIdentifierError
from promptgraft.frozenmap import FrozenMap
from promptgraft.parts.validation import check_key
from promptgraft.runtime.event_loop import awaited
from promptgraft.serde import is_unicode, shown
from promptgraft.strict.nodes import decoded, raise_lines
from promptgraft.text import raised

_logger = logging.getLogger("promptgraft")

Frozen = Literal["", "front_matter"]
"""What of a file is none of its text: nothing, or the lines between ``---`` at its beginning."""

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)")


@attrs.frozen
class FileSource:
    """A file that holds one text.

    Attributes:
        path: the file, in UTF-8; a relative one begins at the folder of its sources.
        frozen: ``front_matter`` keeps the lines between ``---`` at its beginning as they are.

    Raises:
        ConfigError: ``frozen`` is something else.
    """

    path: Path = attrs.field(converter=Path)
    frozen: Frozen = ""

    def __attrs_post_init__(self) -> None:
        if self.frozen not in ("", "front_matter"):
            raise ConfigError(f"frozen: expected `front_matter`, found {shown(self.frozen)}")


@attrs.frozen
class CallbackSource:
    """One text that a user's own functions read and write, plain or ``async``.

    Attributes:
        read: returns the text.
        write: stores a text in its place.

    Raises:
        ConfigError: one of them is no function.
    """

    read: Callable[[], str | Awaitable[str]]
    write: Callable[[str], object]

    def __attrs_post_init__(self) -> None:
        for name in ("read", "write"):
            function: object = getattr(self, name)
            if not callable(function):
                raise ConfigError(f"{name}: expected a function, found {shown(function)}")

    def text(self) -> str:
        """Return the text that is stored now.

        Raises:
            ConfigError: ``read`` raised something, or returned no text.
        """
        found: object = _called("read", self.read)
        if not isinstance(found, str) or not is_unicode(found):
            raise ConfigError(f"read: expected a text, found {shown(found)}")
        return found

    def put(self, text: str) -> None:
        """Store a text.

        Raises:
            ConfigError: ``write`` raised something.
        """
        _called("write", self.write, text)


def _called(name: str, function: Callable[..., object], *args: str) -> object:
    try:
        return awaited(function(*args))
    except Exception as error:  # a user's function may raise anything
        raise ConfigError(f"{name} raised {' '.join(raised(error).split())}") from error


Source = FileSource | CallbackSource


@attrs.frozen(kw_only=True)
class TextFile:
    """A file as it was read, taken apart into its text and what stays as it is.

    Attributes:
        path: where it really stands, without links.
        name: as the user named it, for messages.
        mode: who may read and write it.
        raw: all of its bytes.
        text: what may change: without a byte order mark, what is frozen, and the line breaks
            around it; where all line breaks are CRLF, they are LF in it.
        before: what stands before the text.
        after: the line breaks behind the text.
        line_break: of the file: CRLF or LF.
    """

    path: Path
    name: str
    mode: int
    raw: bytes = attrs.field(repr=False)
    text: str
    before: str
    after: str
    line_break: str

    def holding(self, text: str) -> bytes:
        """Return the file with another text; with its own text, the very bytes that were read."""
        if text == self.text:
            return self.raw
        whole = self.before + text.replace("\r\n", "\n") + self.after
        if self.line_break != "\n":
            return whole.replace("\n", self.line_break).encode()
        return (self.before + text + self.after).encode()


def read_file(path: Path, frozen: Frozen, *, name: str) -> TextFile:
    """Return a file taken apart; messages call it ``name``.

    Raises:
        DataFormatError: it cannot be read, is not UTF-8, or lacks what is to be frozen.
    """
    try:
        real = path.resolve(strict=True)
        if not real.is_file():  # reading a pipe would wait for ever
            raise DataFormatError(f"{name}: expected a file, found something else; name a file")
        raw, mode = real.read_bytes(), stat.S_IMODE(real.stat().st_mode)
    except OSError as error:
        raise DataFormatError(f"{name}: cannot be read: {error.strerror}") from None
    faults: list[str] = []
    if decoded(raw, 1, lambda line, why: faults.append(f"{name}:{line}: {why}")) is None:
        raise DataFormatError(faults[0].replace(f"{name}:0:", f"{name}:"))
    whole = raw.decode()  # with its byte order mark
    # Only where no line break is of another kind, the way back leads to the same bytes.
    is_crlf = 0 < whole.count("\r\n") == whole.count("\n")
    if is_crlf:
        whole = whole.replace("\r\n", "\n")
    start = len(whole) - len(whole.removeprefix("\ufeff"))
    if frozen:
        front = _FRONT_MATTER.match(whole)
        if front is None:
            raise DataFormatError(
                f"{name}:1: expected front matter between two lines `---`, found none; add it, or "
                "leave `frozen` out"
            )
        start = front.end()
    text = whole[start:].strip("\r\n")
    start = whole.index(text, start)
    return TextFile(
        path=real,
        name=name,
        mode=mode,
        raw=raw,
        text=text,
        before=whole[:start],
        after=whole[start + len(text) :],
        line_break="\r\n" if is_crlf else "\n",
    )


@attrs.frozen(kw_only=True)
class Sources:
    """Named texts as they were when they were read, and where they are kept.

    Made by :func:`read_sources`.

    Attributes:
        folder: the folder that every file is in, without links.
        texts: the texts by name: those of files, then those of callbacks.
        files: the files by the names of their texts.
        callbacks: the others by the names of their texts.
    """

    folder: Path
    texts: Mapping[str, str]
    files: Mapping[str, TextFile]
    callbacks: Mapping[str, CallbackSource]

    def content(self, name: str, text: str) -> str:
        """Return all that the source of a text holds when it holds ``text``."""
        return self.files[name].holding(text).decode() if name in self.files else text

    def held(self, name: str) -> HeldText:
        """Return a text as a writer takes it."""
        path = (
            self.files[name].path.relative_to(self.folder).as_posix() if name in self.files else ""
        )
        return HeldText(name=name, path=path, old=self.content(name, self.texts[name]), new=())

    def changes(self, texts: Mapping[str, str]) -> tuple[HeldText, ...]:
        """Return those of ``texts`` that the sources do not hold, as a writer takes them."""
        return tuple(
            attrs.evolve(self.held(name), new=(self.content(name, texts[name]),))
            for name, text in self.texts.items()
            if texts.get(name, text) != text
        )

    def writer(self) -> SourceWriter:
        """Return what writes the sources."""
        return SourceWriter(self.folder, self.callbacks)

    def write(self, texts: Mapping[str, str], *, by: str) -> tuple[str, ...]:
        """Let the sources hold other texts, all of them or none: files first, then callbacks.

        Killed half-way, the next :func:`read_sources` completes it.

        Args:
            texts: by name; those that are left out stay as they are.
            by: what writes, in a few words, for messages.

        Returns:
            What was written.

        Raises:
            ConfigError: a source has changed since it was read, or cannot be written. Every one
                is as before, but for those that the message says were not put back.
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
    sources: Mapping[str, Source],
    *,
    folder: Path,
    line: Callable[[str, str], str] = _unplaced,
) -> Sources:
    """Read every source once, after settling what a writer that was killed has left.

    Args:
        sources: at least one source, by the names of their texts.
        folder: the folder of the project: files must be in it.
        line: makes the line of a fault out of the name of a text and what is wrong with it.

    Raises:
        DataFormatError: a source cannot be read, is no text, has a name that is no identifier,
            is outside of the folder, or is the file of another one: a line for each.
        ConfigError: what a writer has left cannot be settled.
        JournalLockedError: another process writes the sources.
    """
    if not sources:
        raise DataFormatError("expected at least one text, found none; name a file or a callback")
    root = folder.resolve()
    stored = {name: one for name, one in sources.items() if isinstance(one, CallbackSource)}
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
    found = read_file(folder / source.path, source.frozen, name=str(folder / source.path))
    if not found.path.is_relative_to(root):
        raise ConfigError(
            f"{found.name}: expected a file in the project's folder {root}, found {found.path}; "
            "move it there"
        )
    if may_be_run(found.path.relative_to(root)):
        raise ConfigError(
            f"{found.name}: expected a file of text, found one that may be run; let the code read "
            "the text from a file of its own, such as one that ends in .md or .txt"
        )
    return found


def _twins(files: Mapping[str, TextFile]) -> Iterator[tuple[str, str]]:
    """Yield each text whose file is that of an earlier one, however it is spelled."""
    seen: dict[tuple[int, int], str] = {}
    for name, file in files.items():
        # The system tells whether case, links and dots lead to the same file.
        status = os.stat(file.path)  # noqa: PTH116
        first = seen.setdefault((status.st_dev, status.st_ino), name)
        if first != name:
            twin = f"{file.name} is the file of text `{first}` too, there {files[first].name}"
            yield name, f"{twin}; name each file once"

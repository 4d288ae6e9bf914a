"""Texts written to where they are kept, all or none; after a kill, the next start mends them.

A record in ``.promptgraft`` says what is being written from before the first write until the
last one has succeeded or was taken back. Effects on files go through :mod:`promptgraft.files`, so
that tests can end the process at each of them.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from promptgraft.errors import CallerError, ConfigError, DataFormatError
from promptgraft.files import held_lock, make_folder, sweep, sync_folder, write_atomically
from promptgraft.serde import parse_json, shown, unstructure
from promptgraft.strict import structure

if TYPE_CHECKING:
    from promptgraft.agents.sources import CallbackSource

RECORD = Path(".promptgraft", "sources.json")

_LOCK = RECORD.with_suffix(".lock")
_IGNORED = ".gitignore"
_YAML = {".yaml", ".yml"}
_CODE = {"", ".cfg", ".ini", ".js", ".pth", ".py", ".sh", ".toml", ".ts"}
LEFT = (
    "it is left as it is: `promptgraft restore --overwrite` writes over it, `promptgraft restore "
    "--keep` leaves it for good"
)


def may_be_run(path: Path) -> bool:
    """Tell whether a file of a project may be code, or say what code is run."""
    is_of_ci = path.suffix in _YAML and any(one.startswith(".") for one in path.parts)
    return (
        path.suffix in _CODE or path.name == "promptgraft.yaml" or ".git" in path.parts or is_of_ci
    )


@attrs.frozen(kw_only=True)
class HeldText:
    """A text that is being written.

    Attributes:
        name: the name of the text.
        path: its file in the folder, with `/`; empty for one that is stored by functions.
        old: the whole file, or the text, as it was.
        new: what it may hold since; the last one is what it is to hold.
    """

    name: str
    path: str
    old: str
    new: tuple[str, ...]

    @property
    def where(self) -> str:
        """What messages call it."""
        return self.path or f"text `{self.name}`"


@attrs.frozen(kw_only=True)
class Record:
    """What is being written.

    Attributes:
        by: what writes, in a few words.
        goal: whether every text is to hold the old or the new one in the end.
        texts: in the order in which they are written.
    """

    by: str
    goal: Literal["old", "new"]
    texts: tuple[HeldText, ...]
    version: Literal[1] = 1


class SourceWriter:
    """Reads and writes the texts of one folder; one process at a time, under a lock.

    Args:
        folder: the folder of the project, without links.
        stored: the texts that are no files, by name; None leaves them to another writer.
    """

    def __init__(self, folder: Path, stored: Mapping[str, CallbackSource] | None) -> None:
        self._folder = folder
        self._stored = stored
        self._record = folder / RECORD

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other writers out, and settle what one that was killed has left.

        Raises:
            JournalLockedError: another process writes.
            ConfigError: what was left cannot be settled.
            OSError: the system refuses.
        """
        with self.locked():
            self.settle()
            yield

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out, and leave what one that was killed has left."""
        make_folder(self._record.parent, under=self._folder)
        with (
            contextlib.suppress(FileExistsError),
            (self._record.parent / _IGNORED).open("x") as file,
        ):
            file.write(f"/{_IGNORED}\n/{RECORD.stem}.*\n")
        what, mend = f"the agent's folder {self._folder}", "stop it"
        with held_lock(self._folder / _LOCK, what=what, mend=mend, seconds=0.3):
            sweep(self._record)
            yield

    def now(self, text: HeldText) -> str:
        """Return what a text holds now: the whole file, or the text."""
        if not text.path:
            return self._callback(text).text()
        try:
            return self._path(text).read_bytes().decode()
        except UnicodeDecodeError:
            raise DataFormatError("expected UTF-8; restore it from version control") from None

    def put(self, text: HeldText, value: str) -> None:
        """Let a text hold ``value``."""
        if not text.path:
            self._callback(text).put(value)
            return
        path = self._path(text)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        write_atomically(path, value.encode(), mode=mode)

    def _callback(self, text: HeldText) -> CallbackSource:
        found = (self._stored or {}).get(text.name)
        if found is None:
            raise ConfigError("the project names no functions for it any more; restore them")
        return found

    def _path(self, text: HeldText) -> Path:
        path = (self._folder / text.path).resolve()
        if not path.is_relative_to(self._folder):
            raise ConfigError(f"leads out of {self._folder}; put the file back there")
        if may_be_run(path.relative_to(self._folder)):
            raise ConfigError("may be run, and is never written; write the text yourself")
        return path

    def begin(self, record: Record) -> None:
        """Keep a record durably."""
        document = json.dumps(unstructure(record), indent=1, ensure_ascii=False)
        write_atomically(self._record, f"{document}\n".encode())

    def end(self) -> None:
        """Forget the record: every text is what it is to be."""
        self._record.unlink(missing_ok=True)
        sync_folder(self._record.parent)

    def recorded(self) -> Record | None:
        """Return the record of what is being written; None when nothing is.

        Raises:
            DataFormatError: it is no such record.
        """
        try:
            data = self._record.read_bytes()
        except FileNotFoundError:
            return None
        where = str(self._record)
        mend = "; see that every text is as you want it, then delete the file"
        try:
            return structure(parse_json(data, where=where), Record, where=where)
        except DataFormatError as error:
            raise DataFormatError(f"{error}{mend}") from None

    def settle(self, *, overwrite: bool = False) -> None:
        """Let every text of the record hold what it is to hold.

        A text that something else has written since stays as it is, unless ``overwrite``.

        Raises:
            ConfigError: some texts cannot be written, or stay as they are; the others are right.
        """
        record = self.recorded()
        faults = [] if record is None else self._settled(record, overwrite=overwrite)
        if record is not None and faults:
            raise ConfigError(f"{record.by} was interrupted: {'; '.join(faults)}")

    def _settled(self, record: Record, *, overwrite: bool = False) -> list[str]:
        """Settle what can be, keep a record of the rest, and return why it cannot be."""
        faults: list[str] = []
        left: list[HeldText] = []
        for text in record.texts:
            if self._stored is None and not text.path:
                left.append(text)
                continue
            goal = text.old if record.goal == "old" else text.new[-1]
            try:
                self._settle(text, goal, overwrite=overwrite)
            except (OSError, CallerError) as error:
                faults.append(why_not(text, error))
                left.append(text)
        if left:
            self.begin(attrs.evolve(record, texts=tuple(left)))
        else:
            self.end()
        return faults

    def _settle(self, text: HeldText, goal: str, *, overwrite: bool) -> None:
        if text.path:
            sweep(self._path(text))
        try:
            found: str | None = self.now(text)
        except (FileNotFoundError, DataFormatError):
            found = None
        if not overwrite and found not in (text.old, *text.new):
            raise ConfigError(f"something else has written it since; {LEFT}")
        if found != goal:
            self.put(text, goal)

    def check_unchanged(self, texts: Iterable[HeldText]) -> None:
        """Refuse texts that do not hold the old one any more; say where they differ.

        Raises:
            ConfigError: a text has changed, or cannot be read.
        """
        faults = []
        for text in texts:
            try:
                if (now := self.now(text)) != text.old:
                    where = f"{text.where}:{difference(text.old, now)}"
                    faults.append(f"{where}; it has changed since it was read")
            except (OSError, CallerError) as error:
                faults.append(why_not(text, error))
        if faults:
            raise ConfigError("; ".join(faults))

    def write(self, texts: Sequence[HeldText], *, by: str) -> None:
        """Write the last ``new`` of every text in this order, or none; under :meth:`held`.

        Raises:
            ConfigError: a text is not what it was, or cannot be written; every one is as before,
                but for those that the message says were not put back.
        """
        self.check_unchanged(texts)
        record = Record(by=by, goal="new", texts=tuple(texts))
        begun: list[HeldText] = []
        try:
            self.begin(record)
            for text in texts:
                begun.append(text)
                self.put(text, text.new[-1])
            self.end()
        except (OSError, CallerError) as error:
            failed = why_not(begun[-1], error) if begun else str(error)
            left = self._take_back(record)
            raise ConfigError(
                f"{failed}; {f'not put back: {left}' if left else 'every text is as it was'}"
            ) from error
        except KeyboardInterrupt:
            self._take_back(record)
            raise

    def _take_back(self, record: Record) -> str:
        """Let every text hold its old one, and return which do not, and why."""
        back = attrs.evolve(record, goal="old")
        try:
            self.begin(back)
            return "; ".join(self._settled(back))
        except OSError as error:
            return str(error)


def settle_left_over(folder: Path, stored: Mapping[str, CallbackSource] | None) -> str:
    """Settle what a writer that was killed has left in a folder, and say so; empty for nothing.

    Raises:
        ConfigError, DataFormatError, JournalLockedError, OSError: as :meth:`SourceWriter.held`.
    """
    if not (folder / RECORD).exists():
        return ""
    writer = SourceWriter(folder, stored)
    record = writer.recorded()
    with writer.held():
        left = writer.recorded()
    settled = [
        text.where
        for text in (record.texts if record else ())
        if not left or text not in left.texts
    ]
    if record is None or not settled:
        return ""
    did = "put back" if record.goal == "old" else "written"
    return f"{record.by} was interrupted; {did} now: {', '.join(settled)}"


def why_not(text: HeldText, error: OSError | CallerError) -> str:
    """Return why a text cannot be read or written, with what messages call it."""
    return f"{text.where}: {error.strerror if isinstance(error, OSError) else error}"


def difference(expected: str, found: str) -> str:
    """Return the first line where two texts differ: its number, and both."""
    lines = zip_longest(expected.split("\n"), found.split("\n"))
    for number, (wanted, there) in enumerate(lines, 1):
        if wanted != there:
            said = [
                f"line {shown(one)}" if one is not None else "no line" for one in (wanted, there)
            ]
            return f"{number}: expected {said[0]}, found {said[1]}"
    return ""

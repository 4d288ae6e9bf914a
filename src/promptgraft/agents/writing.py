"""Atomic writes of several texts to their sources, with recovery after a kill.

A record in ``.promptgraft`` describes the write from before its first step until all texts are
written or restored. All file operations go through :mod:`promptgraft.ground.files`, so that tests
can kill the process at each of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import attrs

from promptgraft.errors import CallerError, ConfigError, DataFormatError, user_errors
from promptgraft.ground import files, locks
from promptgraft.ground.serde import (
    Json,
    canonical_json,
    is_unicode,
    parse_json,
    shown,
    unstructure,
)
from promptgraft.ground.strict import structure
from promptgraft.ground.text import raised
from promptgraft.runtime.event_loop import awaited

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
    """Return whether a file of a project may be code or decide what code is run."""
    is_of_ci = path.suffix in _YAML and any(part.startswith(".") for part in path.parts)
    return (
        path.suffix in _CODE or path.name == "promptgraft.yaml" or ".git" in path.parts or is_of_ci
    )


@attrs.frozen(kw_only=True)
class WrittenText:
    """A text that is being written.

    Attributes:
        name: the name of the text.
        path: its file relative to the folder, with `/`; empty for a callback.
        old: the original content of the file, or the original text.
        new: contents that it may hold since; the last one is the target.
    """

    name: str
    path: str
    old: str
    new: tuple[str, ...]

    @property
    def where(self) -> str:
        """Its name in messages."""
        return self.path or f"text `{self.name}`"


@attrs.frozen(kw_only=True)
class WriteRecord:
    """A write in progress.

    Attributes:
        by: description of the writer.
        goal: whether every text is to hold its old or its new content in the end.
        texts: the texts, in the order in which they are written.
        seal: shows that the record was made here, by this user.
    """

    by: str
    goal: Literal["old", "new"]
    texts: tuple[WrittenText, ...]
    version: Literal[1] = 1
    seal: str = ""

    def sealed(self, folder: Path) -> WriteRecord:
        """Return the record with its seal for ``folder``."""
        return attrs.evolve(self, seal=seal_of(folder, self._signed()))

    def check_seal(self, folder: Path) -> None:
        """Refuse a record that was not made here, by this user.

        Raises:
            ConfigError: it may have come with the folder.
        """
        if not is_sealed(folder, self._signed(), self.seal):
            raise ConfigError(
                f"{folder / RECORD}: expected the record of a write of yours in this folder, found "
                "one that you did not make here; it may have come with the repository, and is not "
                "carried out; compare the texts with version control, then `promptgraft restore "
                "--keep` removes it"
            )

    def _signed(self) -> dict[str, Json]:
        plain = unstructure(attrs.evolve(self, seal=""))
        assert isinstance(plain, dict)  # noqa: S101 - a class becomes an object
        return plain


class SourceWriter:
    """Reads and writes the texts of one folder, under a lock between processes.

    Args:
        folder: the folder of the project, with links resolved.
        stored: the callbacks, by name of their text; None to leave their texts to another writer.
    """

    def __init__(self, folder: Path, stored: Mapping[str, CallbackSource] | None) -> None:
        self._folder = folder
        self._stored = stored
        self._record = folder / RECORD
        self._identity = self._found()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, and complete an interrupted write first.

        Raises:
            JournalLockedError: another process writes.
            ConfigError: the interrupted write cannot be completed.
            OSError: the file system refuses.
        """
        with self.locked():
            self.settle()
            yield

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, without completing an interrupted write."""
        files.make_folder(self._record.parent, under=self._folder)
        with (
            contextlib.suppress(FileExistsError),
            (self._record.parent / _IGNORED).open("x") as file,
        ):
            file.write(f"/{_IGNORED}\n/{RECORD.stem}.*\n")
        what, mend = f"the agent's folder {self._folder}", "stop it"
        # The record is read and replaced as a whole: two writers would forget each other's texts.
        with locks.held_lock(self._folder / _LOCK, what=what, mend=mend, seconds=0.3):
            files.sweep(self._record)
            yield

    def now(self, text: WrittenText) -> str:
        """Return the current content of the file, or the current text of the callback."""
        if not text.path:
            return self._callback(text).text()
        try:
            return self._path(text).read_bytes().decode()
        except UnicodeDecodeError:
            raise DataFormatError("expected UTF-8; restore it from version control") from None

    def put(self, text: WrittenText, value: str) -> None:
        """Write ``value`` to the source of a text."""
        if not text.path:
            self._callback(text).put(value)
            return
        path = self._path(text)
        # A new file takes the place of the old one, so that its permissions must be carried over.
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        files.write_atomically(path, value.encode(), mode=mode)

    def _callback(self, text: WrittenText) -> CallbackSource:
        callback = (self._stored or {}).get(text.name)
        if callback is None:
            raise ConfigError("the project no longer names functions for it; restore them")
        return callback

    def _found(self) -> tuple[int, int]:
        status = self._folder.stat()
        return status.st_dev, status.st_ino

    def _check_folder(self) -> None:
        # An agent may have put a link to another folder in its place, which has such files too.
        if self._found() != self._identity:
            raise ConfigError(
                f"{self._folder} is another folder than at the start; put the project back there"
            )

    def _path(self, text: WrittenText) -> Path:
        # Checked again at each write: a record on disk, or a link, may have changed since.
        self._check_folder()
        path = (self._folder / text.path).resolve()
        if not path.is_relative_to(self._folder):
            raise ConfigError(f"leads out of {self._folder}; put the file back there")
        if may_be_run(path.relative_to(self._folder)):
            raise ConfigError("may be run, and is never written; write the text yourself")
        return path

    def begin(self, record: WriteRecord) -> None:
        """Write a record durably."""
        self._check_folder()
        sealed = record.sealed(self._folder)
        document = json.dumps(unstructure(sealed), indent=1, ensure_ascii=False)
        files.write_atomically(self._record, f"{document}\n".encode())

    def end(self) -> None:
        """Remove the record: every text holds its target."""
        self._check_folder()
        self._record.unlink(missing_ok=True)
        files.sync_folder(self._record.parent)

    def recorded(self) -> WriteRecord | None:
        """Return the record of an unfinished write; None if there is none.

        Raises:
            DataFormatError: the file is not a valid record.
        """
        try:
            data = self._record.read_bytes()
        except FileNotFoundError:
            return None
        where = str(self._record)
        mend = "; see that every text is as you want it, then delete the file"
        try:
            return structure(parse_json(data, where=where), WriteRecord, where=where)
        except DataFormatError as error:
            raise DataFormatError(f"{error}{mend}") from None

    def settle(self, *, overwrite: bool = False) -> None:
        """Write the target of every text in the record.

        A text that something else has written since is left alone, unless ``overwrite``.

        Raises:
            ConfigError: the record was not made here, by this user, and nothing is written; or some
                texts cannot be written or were left alone, and the others are settled.
        """
        record = self.recorded()
        if record is not None:
            record.check_seal(self._folder)
        faults = [] if record is None else self._settled(record, overwrite=overwrite)
        if record is not None and faults:
            raise ConfigError(f"{record.by} was interrupted: {'; '.join(faults)}")

    def _settled(self, record: WriteRecord, *, overwrite: bool = False) -> list[str]:
        """Settle what is possible, keep a record of the rest, and return the reasons."""
        faults: list[str] = []
        unsettled: list[WrittenText] = []
        for text in record.texts:
            # Only Python code has the functions of a callback; its next run settles the text.
            if self._stored is None and not text.path:
                unsettled.append(text)
                continue
            goal = text.old if record.goal == "old" else text.new[-1]
            try:
                self._settle(text, goal, overwrite=overwrite)
            except (OSError, CallerError) as error:
                faults.append(why_not(text, error))
                unsettled.append(text)
        if unsettled:
            self.begin(attrs.evolve(record, texts=tuple(unsettled)))
        else:
            self.end()
        return faults

    def _settle(self, text: WrittenText, goal: str, *, overwrite: bool) -> None:
        if text.path:
            files.sweep(self._path(text))
        try:
            text_now: str | None = self.now(text)
        except (FileNotFoundError, DataFormatError):
            text_now = None
        # The user's own edit is worth more than either of ours.
        if not overwrite and text_now not in (text.old, *text.new):
            raise ConfigError(f"something else has written it since; {LEFT}")
        if text_now != goal:
            self.put(text, goal)

    def check_unchanged(self, texts: Iterable[WrittenText]) -> None:
        """Raise if a text no longer holds its old content, saying where it differs.

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

    def write(self, texts: Sequence[WrittenText], *, by: str) -> None:
        """Write the last ``new`` of every text in this order, or of none; call under :meth:`held`.

        Raises:
            ConfigError: a text has changed or cannot be written. All texts are unchanged, except
                those that the message lists as not put back.
        """
        self.check_unchanged(texts)
        record = WriteRecord(by=by, goal="new", texts=tuple(texts))
        begun: list[WrittenText] = []
        try:
            # Durable before the first text changes: a kill at any later point can be completed.
            self.begin(record)
            for text in texts:
                begun.append(text)
                self.put(text, text.new[-1])
            self.end()
        except (OSError, CallerError) as error:
            failed = why_not(begun[-1], error) if begun else str(error)
            unsettled = self._take_back(record)
            consequence = f"not put back: {unsettled}" if unsettled else "every text is as it was"
            raise ConfigError(f"{failed}; {consequence}") from error
        # Any other death is settled by the next process; this one still has the time.
        except KeyboardInterrupt:
            self._take_back(record)
            raise

    def _take_back(self, record: WriteRecord) -> str:
        """Restore the old content of every text, and return which could not be, and why."""
        back = attrs.evolve(record, goal="old")
        try:
            self.begin(back)
            return "; ".join(self._settled(back))
        except OSError as error:
            return str(error)


def settle_left_over(folder: Path, stored: Mapping[str, CallbackSource] | None) -> str:
    """Complete an interrupted write in a folder, and describe it; empty if there was none.

    Only the record of a write that was made in this folder, by this user, is carried out.

    Raises:
        ConfigError, DataFormatError, JournalLockedError, OSError: see :meth:`SourceWriter.held`.
    """
    # Without the lock, because most folders have no record and reading them must not wait.
    if not (folder / RECORD).exists():
        return ""
    writer = SourceWriter(folder, stored)
    record = writer.recorded()
    with writer.held():
        unsettled = writer.recorded()
    settled = [
        text.where
        for text in (record.texts if record else ())
        if not unsettled or text not in unsettled.texts
    ]
    if record is None or not settled:
        return ""
    did = "put back" if record.goal == "old" else "written"
    return f"{record.by} was interrupted; {did} now: {', '.join(settled)}"


def left_over(folder: Path) -> str:
    """Return a line about an interrupted write in a folder, without writing; empty without one.

    Raises:
        ConfigError: the record was not made here, by this user.
        DataFormatError: the record is invalid.
    """
    writer = SourceWriter(folder, None)
    record = writer.recorded()
    if record is None or locks.is_held(folder / _LOCK):
        return ""
    record.check_seal(folder)
    names = ", ".join(text.where for text in record.texts)
    return (
        f"{record.by} was interrupted, and {names} may be half written; `promptgraft restore`, or "
        "the next command that needs them, completes it"
    )


def why_not(text: WrittenText, error: OSError | CallerError) -> str:
    """Return why a text cannot be read or written, with its name."""
    return f"{text.where}: {error.strerror if isinstance(error, OSError) else error}"


def difference(expected: str, actual: str) -> str:
    """Return the first line in which two texts differ: its number and both versions."""
    lines = zip_longest(expected.split("\n"), actual.split("\n"))
    for number, (wanted_line, there) in enumerate(lines, 1):
        if wanted_line != there:
            lines_shown = [
                f"line {shown(text_line)}" if text_line is not None else "no line"
                for text_line in (wanted_line, there)
            ]
            return f"{number}: expected {lines_shown[0]}, found {lines_shown[1]}"
    return ""


_KEY_BYTES = 32
_OWNER_ONLY, _OWNER_ONLY_FOLDER = 0o600, 0o700
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def seal_of(folder: Path, record: Mapping[str, Json]) -> str:
    """Return the seal of a record for a folder; makes the key if there is none yet.

    Raises:
        ConfigError: the key can be neither read nor made.
    """
    # With the real path: a record must not be carried out in another checkout.
    message = canonical_json([os.path.realpath(folder), dict(record)]).encode()
    return hmac.new(_key(), message, hashlib.sha256).hexdigest()


def is_sealed(folder: Path, record: Mapping[str, Json], seal: str) -> bool:
    """Return whether ``seal`` is the seal of a record for a folder."""
    return hmac.compare_digest(seal_of(folder, record).encode(), seal.encode())


def _key() -> bytes:
    base = os.environ.get("XDG_STATE_HOME") or str(Path("~", ".local", "state").expanduser())
    path = Path(base, "promptgraft", "seal.key")
    try:
        with contextlib.suppress(FileNotFoundError):
            return _complete(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY_FOLDER)
        _make(path)
        return _complete(path)
    except OSError as error:
        raise ConfigError(
            f"the key that signs records of writes cannot be kept in {path}: {error.strerror}; "
            "name a folder that is yours with the variable XDG_STATE_HOME"
        ) from None


def _complete(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(0, f"expected {_KEY_BYTES} bytes, found {len(key)}; delete it")
    return key


def _make(path: Path) -> None:
    """Make the key, unless another process is first."""
    temporary = f"{path}.{secrets.token_hex(4)}"
    descriptor = os.open(temporary, _NEW, _OWNER_ONLY)
    try:
        try:
            files.write_all(descriptor, secrets.token_bytes(_KEY_BYTES))
            # Before the key has its name: an empty key after a power loss would void every seal.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with contextlib.suppress(FileExistsError):
            # Unlike a rename, a link never replaces the key that another process has used already.
            os.link(temporary, path)
    finally:
        os.unlink(temporary)  # noqa: PTH108
    files.sync_folder(path.parent)


@attrs.frozen
class CallbackSource:
    """One text that functions of the user read and write, plain or ``async``.

    Attributes:
        read: returns the text.
        write: replaces the text.

    Raises:
        ConfigError: one of them is not a function.
    """

    read: Callable[[], str | Awaitable[str]]
    write: Callable[[str], object]

    def __attrs_post_init__(self) -> None:
        for name in ("read", "write"):
            function: object = getattr(self, name)
            if not callable(function):
                raise ConfigError(f"{name}: expected a function, found {shown(function)}")

    def text(self) -> str:
        """Return the stored text.

        Raises:
            ConfigError: ``read`` raised an exception or did not return a text.
        """
        text_object: object = _called("read", self.read)
        if not isinstance(text_object, str) or not is_unicode(text_object):
            raise ConfigError(f"read: expected a text, found {shown(text_object)}")
        return text_object

    def put(self, text: str) -> None:
        """Store a text.

        Raises:
            ConfigError: ``write`` raised an exception.
        """
        _called("write", self.write, text)


def _called(name: str, function: Callable[..., object], *args: str) -> object:
    try:
        return awaited(function(*args))
    except user_errors() as error:
        raise ConfigError(f"{name} raised {' '.join(raised(error).split())}") from error

"""A run directory: its files, its lock, its creation and removal.

Files are replaced atomically: readers see the old text or the new one. Nothing here is synced to
disk, because everything but the journal can be rebuilt from the journal.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.files import (
    NEW_FILE,
    named_in_errors,
    opened,
    write_all,
)
from promptgraft.ground.folders import folder_opened, remove_tree
from promptgraft.ground.locks import held_lock, is_held
from promptgraft.ground.serde import Json, digest_text, parse_json, shown
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.nodes import Source
from promptgraft.journal.file import FOLDER

T = TypeVar("T")

VERSION = 1
"""The version of every JSON document in a run directory."""

RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9][a-z0-9_-]*")
"""Matches the ids of runs: the time of creation, in UTC, and the key of the prompt."""

_SECONDS_FOR_THE_LOCK = 0.3  # a reader in `is_locked` holds it for a moment
_REMOVED = ".removed-"
_FROM_SCRATCH = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
# Characters; file systems allow 255 bytes, of which digest and ending take 16.
_LONGEST_NAME = 200
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY}


class _File:
    """Descriptor for the path of a file in a run directory."""

    def __init__(self, name: str, about: str) -> None:
        self._name = name
        self.__doc__ = about

    def __get__(self, folder: RunFolder, kind: type[RunFolder]) -> Path:
        return folder.path / self._name


@attrs.frozen
class RunFolder:
    """The files of one run.

    Attributes:
        path: the folder.
    """

    path: Path

    config = _File("config.json", "Origin and settings of the run; as old as the folder.")
    journal = _File("journal.jsonl", "Every answer that the run paid for.")
    scores = _File("scores.jsonl", "The scores, of a run that was exported without its answers.")
    cases = _File("cases.jsonl", "The cases of a run that used others than those of its project.")
    files = _File(FOLDER, "The folder with the images and files of cases, by their SHA-256.")
    sources = _File("sources.zip", "The files of the project that the run was made from.")
    events = _File("events.jsonl", "The events of the run, one per line.")
    result = _File("result.json", "The result of the run; written when it ends.")
    frontier = _File("frontier.json", "The candidates that lead on some example.")
    ledger = _File("ledger.json", "Calls, tokens, money and time by role and model.")
    summary = _File("summary.md", "The run on one page of Markdown.")
    report = _File("report.html", "The whole run as one page of HTML.")
    candidates = _File("candidates", "The folder with a page for each candidate.")
    rejected = _File("rejected", "The folder with a page for each rejected proposal.")
    rounds = _File("rounds", "The folder with a page for each round of a search by rounds.")
    questions = _File("questions", "The folder with each question to the reflection model.")
    baseline_prompts = _File("baseline_prompts", "The folder with the texts before the run.")
    best_prompts = _File("best_prompts", "The folder with the best texts so far.")
    stop = _File("optimize.stop", "Ends the run in an orderly way as soon as it exists.")
    lock = _File("run.lock", "Held while a process works in the folder.")

    @property
    def id(self) -> str:
        """The id of the run: the name of its folder."""
        return self.path.name

    @property
    def second(self) -> datetime:
        """The time of creation in the id, to the second; the earliest time if it is invalid."""
        try:
            return datetime.strptime(f"{self.id[:15]}+0000", "%Y%m%d-%H%M%S%z")
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)

    def candidate(self, number: int) -> Path:
        """Return the page of a candidate."""
        return self.candidates / f"{number}.md"

    def rejection(self, step: int, attempt: int) -> Path:
        """Return the page of a rejected proposal."""
        return self.rejected / f"{step}-{attempt}.md"

    def round(self, number: int) -> Path:
        """Return the page of a round."""
        return self.rounds / f"{number}.md"

    def question(self, position: str) -> Path:
        """Return the file of the question that was asked at a position in the run."""
        # Positions contain no `+`, so that they can be read back from the names of files.
        name = position.replace("/", "+")
        if len(name) > _LONGEST_NAME:
            name = f"{name[:_LONGEST_NAME]}{digest_text(name)[:12]}"
        return self.questions / f"{name}.txt"

    def is_page(self, path: Path) -> bool:
        """Return whether a path has the name of a page of some run."""
        shape = _PAGES.get(path.parent.name)
        return shape is not None and shape.fullmatch(path.name) is not None

    @property
    def is_locked(self) -> bool:
        """Whether a process works in the folder now."""
        return is_held(self.lock)

    def held(self) -> AbstractContextManager[None]:
        """Hold the lock of the folder; the system releases it when the process dies.

        Raises:
            JournalLockedError: another process works in the folder.
            OSError: the lock file cannot be made.
        """
        return held_lock(
            self.lock,
            what=f"run {self.id}",
            mend=f"follow it with `promptgraft watch {self.id}`",
            seconds=_SECONDS_FOR_THE_LOCK,
        )

    def remove(self) -> None:
        """Remove the run. It disappears for readers at once, even if this process is killed.

        Raises:
            ConfigError: the folder is a link.
            JournalLockedError: another process works in the folder.
            OSError: a file cannot be removed.
        """
        if self.path.is_symlink():
            raise ConfigError(f"{self.path} is a link; remove it and what it leads to by hand")
        gone = self.path.with_name(f"{_REMOVED}{self.id}")
        # Nobody may start to work in it between the check and the renaming.
        with self.held():
            self.path.rename(gone)
        remove_tree(gone)
        # Also those of earlier processes that were killed between the two steps.
        for leftover in gone.parent.glob(f"{_REMOVED}*"):
            with contextlib.suppress(OSError):
                remove_tree(leftover)


def make_run(
    root: Path, prompt_key: str, config: Mapping[str, Json], *, now: datetime
) -> RunFolder:
    """Create the folder of a new run. It is never visible without its ``config.json``.

    Adds ``id``, ``created`` and ``tracked_as``, a name that is unique across all runs anywhere, to
    ``config``. Later runs of the same second have ids that end in ``-2``, ``-3``, ….

    Raises:
        ConfigError: the folder cannot be made.
    """
    moment = now.astimezone(UTC)
    base = f"{moment:%Y%m%d-%H%M%S}-{prompt_key}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        # In the same folder, because only a rename within a file system is atomic.
        fresh = root / f".new-{uuid.uuid4().hex[:8]}"
        fresh.mkdir()
    except OSError as error:
        raise ConfigError(
            f"cannot create the run folder in {root}: {error.strerror}; name another folder "
            "with --runs"
        ) from error
    try:
        for number in itertools.count(1):
            target = root / (base if number == 1 else f"{base}-{number}")
            document = {
                "id": target.name,
                "tracked_as": f"{target.name}-{uuid.uuid4().hex[:8]}",
                "created": moment.isoformat(),
                **config,
            }
            write_document(fresh / "config.json", document)
            if _renamed(fresh, target):
                break
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(fresh)
        raise
    return RunFolder(target)


def _renamed(fresh: Path, target: Path) -> bool:
    """Rename a folder atomically; return False if the name is taken."""
    # `rename` would silently replace an empty folder.
    if target.exists():
        return False
    try:
        os.rename(fresh, target)  # noqa: PTH104 - the call that tests interrupt
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def write_text(path: Path, text: str) -> None:
    """Replace the content of ``path`` atomically; on an OSError the old file stays.

    The folder must not be a link: agents have their copies beside the pages of a run.
    """
    # A fixed name, because the holder of the lock is the only writer: what a killed process left
    # is overwritten.
    temporary = f".{path.name}.tmp"
    with named_in_errors(path), folder_opened(path.parent) as folder:
        descriptor = os.open(temporary, _FROM_SCRATCH, NEW_FILE, dir_fd=folder)
        try:
            try:
                write_all(descriptor, text.encode("utf-8", "backslashreplace"))
            finally:
                os.close(descriptor)
            # Not synced: `resume` writes the file again if a power loss takes it.
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            # A page may be among files of the user, and a full disk needs the space.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


_PAGES: Mapping[str, re.Pattern[str]] = {
    "candidates": re.compile(r"\d+(\..*)?"),
    "rejected": re.compile(r"\d+-\d+\.md"),
    "questions": re.compile(r".*\+.*\.txt"),
    "rounds": re.compile(r"\d+\.md"),
}
"""Names of the pages of a run, by folder; a page may be the source of a candidate."""

_NO_FILE_NAME = re.compile(r"[^\w.-]+")


def write_texts(
    folder: Path, texts: Mapping[str, str], *, endings: Mapping[str, str] | None = None
) -> None:
    """Write each text to its own file, named after the part: ``system.md``.

    ``endings`` maps names of parts to file endings other than ``.md``.
    """
    folder.mkdir(exist_ok=True)
    short = {name: name.partition(" ")[2] or name for name in texts}
    times = Counter(short.values())
    used_files = set[str]()
    for name, text in texts.items():
        # Parts of different kinds may have the same short name.
        file_name = short[name] if times[short[name]] == 1 else name
        ending = (endings or {}).get(short[name], ".md")
        stem, ending = (
            _NO_FILE_NAME.sub("-", piece) for piece in (file_name.strip(".")[:100], ending)
        )
        # `a/b` and `a-b` are two parts, and some systems take `A` and `a` for one file.
        numbers = (f"-{number}" if number > 1 else "" for number in itertools.count(1))
        file = next(
            file
            for number in numbers
            if (file := f"{stem}{number}{ending}").casefold() not in used_files
        )
        used_files.add(file.casefold())
        write_text(folder / file, text)


def endings_of(folder: RunFolder) -> dict[str, str]:
    """Return the endings of the files in which a project keeps the texts of an agent, by name."""
    if not folder.config.exists():
        return {}
    settings = Source.of(read_document(folder.config)).root.member("settings")
    return {
        name: Path(str(file.member("path").value or file.value)).suffix
        for prompt in settings.member("prompts").members().values()
        for name, file in prompt.member("files").members().items()
    }


def write_document(path: Path, document: Mapping[str, Json]) -> None:
    """Replace the content of ``path`` atomically by a JSON document of this version."""
    write_text(path, json.dumps({"version": VERSION, **document}, indent=1) + "\n")


def read_document(path: Path) -> dict[str, Json]:
    """Read a JSON document of this version.

    Raises:
        DataFormatError: the file is no such document, or missing.
    """
    mend = "restore it" if path.name == "config.json" else "`promptgraft resume` writes it again"
    try:
        file = opened(path)
    except FileNotFoundError:
        raise DataFormatError(f"{path}: expected a document, found no file; {mend}") from None
    try:
        with file:
            document = parse_json(file.read(), where=str(path))
    except DataFormatError as error:
        raise DataFormatError(f"{error}; {mend}") from None
    if not isinstance(document, dict):
        raise DataFormatError(f"{path}: expected a JSON object, found {shown(document)}; {mend}")
    if document.get("version") != VERSION:
        raise DataFormatError(
            f"{path}: expected version {VERSION}, found {shown(document.get('version'))}; use the "
            "version of promptgraft that wrote it"
        )
    return document


def field_of(kind: Kind[T], document: Mapping[str, Json], file: Path, *path: str) -> T:
    """Return the field at ``path`` of a JSON document that was read from ``file``.

    Raises:
        DataFormatError: the field is missing or of another kind.
    """
    source = Source.of(dict(document), str(file))
    node = source.root
    for name in path:
        node = node.member(name)
    value = kind.read(node)
    if value is None:
        raise DataFormatError(source.faults[0])
    return value


def field_or_none(kind: Kind[T], document: Mapping[str, Json], file: Path, *path: str) -> T | None:
    """Return a field like :func:`field_of`, or None if it is null or missing."""
    value: Json = dict(document)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else field_of(kind, document, file, *path)

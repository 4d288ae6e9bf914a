"""Runs as one file: packed to be passed on, and unpacked again.

The file has the journal of a run, its settings and results, and the files of the project that it
was made from. It comes from a stranger: see ``promptgraft.ground.archive``.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from promptgraft.adapters.providers import KNOWN
from promptgraft.errors import ConfigError, DataFormatError, JournalCorruptError
from promptgraft.evals.dataset import file_and_case
from promptgraft.ground.archive import Archive, read_archive, write_archive
from promptgraft.ground.content import files_in
from promptgraft.ground.environment import REFERENCE
from promptgraft.ground.files import is_file
from promptgraft.ground.folders import remove_tree, temporary_folder
from promptgraft.ground.functions import is_own
from promptgraft.ground.serde import Json, looks_like_a_key, parse_json, shown
from promptgraft.ground.work import WorkBudget
from promptgraft.journal.file import FOLDER
from promptgraft.journal.records import SENT, decode_record, header_contents
from promptgraft.overrides.revision_files import FOLDER as STORE
from promptgraft.project.origins import Origin, moved_origin
from promptgraft.project.project import Project, open_project
from promptgraft.project.python_source import beside
from promptgraft.runs import RunFolder
from promptgraft.runs.event_file import encoded_json
from promptgraft.runs.folder import RUN_ID, VERSION, read_document
from promptgraft.search import round_events
from promptgraft.search.events import CaseTaught, Event

_MOST_BYTES = 64_000_000
_META_PROMPTS = "promptgraft"
"""The namespace of meta-prompts in a store."""
_SHORTEST_SECRET = 8


@attrs.frozen
class ProjectSources:
    """Files of a project by their paths below its folder, with `/`.

    Attributes:
        project: the project file.
        inputs: files with cases.
        others: prompts, metrics, code and everything else.
    """

    project: str
    inputs: Mapping[str, Path]
    others: Mapping[str, Path]

    @property
    def files(self) -> dict[str, Path]:
        """All files."""
        return {**self.inputs, **self.others}


def sources_of(project: Project) -> ProjectSources:
    """Return the files that the runs of a project are made from.

    Raises:
        ConfigError: they cannot be kept together: one is outside of the folder of the project, may
            hold a secret, or they are too large.
        DataFormatError: something that the project names has faults.
    """
    inputs = _placed(_inputs(project), project.folder)
    files_named = _placed(_others(project), project.folder)
    [name] = _placed([project.folder / project.path.name], project.folder)
    sources = ProjectSources(
        name, inputs, {at: path for at, path in files_named.items() if at not in inputs}
    )
    size = sum(path.stat().st_size for path in sources.files.values())
    if size > _MOST_BYTES:
        raise ConfigError(
            f"the files of the project have {size:,} bytes, more than {_MOST_BYTES:,}"
        )
    secrets = known_secrets(project)
    for at, path in sources.others.items():
        if holds_secret(path.read_bytes(), secrets, shapes=True):
            raise ConfigError(f"{at} holds something that looks like a key")
    for at, path in sources.inputs.items():
        if holds_secret(path.read_bytes(), secrets):
            raise ConfigError(f"{at} holds the value of a secret")
    return sources


def keep_sources(project: Project, target: Path) -> None:
    """Write the files that a run is made from to an archive, if they can be kept together.

    A run does not need them: without, it is replayed from the project as it is then.
    """
    with contextlib.suppress(ConfigError):
        write_archive(target, sources_of(project).files)


def read_sources(path: Path, budget: WorkBudget) -> Archive:
    """Check the archive of a project's files, which may come from a stranger.

    Raises:
        DataFormatError: it is damaged, too large, or has a file that no project names.
    """
    archive = read_archive(path, budget)
    for name in archive.names:
        if _is_hidden(name):
            raise DataFormatError(
                f"{path}: member {shown(name)}: expected no hidden file; nothing was unpacked"
            )
    return archive


def _is_hidden(name: str) -> bool:
    # Other programs act on hidden files, such as `.git/config`; only overrides are ours.
    is_override = name.startswith(f"{STORE.as_posix()}/") and name.endswith(".json")
    return not is_override and any(part.startswith(".") for part in name.split("/"))


def _inputs(project: Project) -> Iterator[Path]:
    config = project.config
    for name in filter(None, (config.dataset.path, *config.splits.all_files)):
        yield file_and_case(project.folder / name)[0]
    for part in project.parts.values():
        for file in files_in([[case.input, case.turns, case.context] for case in part]):
            if file.path is not None:
                yield Path(file.path)


def _others(project: Project) -> Iterator[Path]:
    config, folder = project.config, project.folder
    yield folder / project.path.name
    for name in project.names:
        source = project.prompt(name).source
        yield from () if source is None else source.files
    if config.baml is not None:
        yield from sorted((folder / config.baml.baml).rglob("*.baml"))
    for named in (config.metrics, config.teacher):
        if isinstance(named, str) and is_file(folder / named):
            yield folder / named
    if config.store.url is None:
        meta_prompts = folder / config.store.path / STORE / _META_PROMPTS
        yield from sorted(path for path in meta_prompts.rglob("*.json") if is_file(path))
    yield from _code(folder)


def _code(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder that have been imported."""
    root = folder.resolve()
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and is_own(file):
            path = Path(file).resolve()
            if path.is_relative_to(root) and is_file(path):
                yield path


def _placed(paths: Iterable[Path], folder: Path) -> dict[str, Path]:
    placed: dict[str, Path] = {}
    root = folder.resolve()
    for path in paths:
        # Without following links below the folder: the project names the links.
        plain = Path(os.path.normpath(path if path.is_absolute() else Path.cwd() / path))
        base = next((base for base in (folder, root) if plain.is_relative_to(base)), None)
        if base is None:
            raise ConfigError(f"{path} is outside of the folder of the project")
        name = plain.relative_to(base).as_posix()
        if _is_hidden(name):
            raise ConfigError(f"{name} is a hidden file")
        placed[name] = plain
    return placed


def known_secrets(project: Project | None = None) -> frozenset[str]:
    """Return the values of the environment variables that hold keys, here or by a project."""
    names = {name for provider in KNOWN.values() for name in provider.keys}
    if project is not None:
        names |= set(REFERENCE.findall(str(project.surroundings.file.document.value)))
    values = (os.environ.get(name, "") for name in names)
    return frozenset(value for value in values if len(value) >= _SHORTEST_SECRET)


def holds_secret(content: bytes, secrets: Iterable[str], *, shapes: bool = False) -> bool:
    """Return whether a content holds one of these secrets; with ``shapes``, also any like a key."""
    if any(secret.encode() in content for secret in secrets):
        return True
    return shapes and looks_like_a_key(content.decode("utf-8", "replace"))


ENDING = ".zip"
"""The ending of an exported run."""

_MANIFEST = "export.json"
_RUN = "run/"


def archive_budget() -> WorkBudget:
    """Return the work that one exported run may cause: 4 GB, packed and unpacked."""
    return WorkBudget(bytes=4_000_000_000)


@attrs.frozen(kw_only=True)
class Exported:
    """A run that was written to a file.

    Attributes:
        path: the file.
        run: the id of the run.
        has_inputs: whether cases, answers and the journal are in it.
        lacking: why the files of the project are not in it; empty if they are.
        code: the Python files in it.
        bytes: its size.
    """

    path: Path
    run: str
    has_inputs: bool
    lacking: str
    code: tuple[str, ...]
    bytes: int


def export_run(folder: RunFolder, path: Path, *, inputs: bool = True) -> Exported:
    """Write a run to a file that somebody else can replay, resume or judge again.

    Without inputs neither cases nor answers are in it, only what was scored, the texts and the
    results: it can be shown and compared, but neither replayed nor resumed.

    Args:
        folder: the run; no process may be working in it.
        path: the file, which must not exist.
        inputs: whether cases, answers and the journal are in it.

    Raises:
        ConfigError: the run is in progress, the file exists, or a secret would be in it.
        DataFormatError, JournalCorruptError: a file of the run is damaged.
        OSError: a file cannot be read or written.
    """
    if folder.is_locked:
        raise ConfigError(f"run {folder.id} is running; export it when it has ended")
    if path.exists():
        raise ConfigError(f"{path} already exists; name another file")
    config = read_document(folder.config)
    with temporary_folder() as work:
        lacking, names = _sources(folder, config, work, inputs=inputs)
        members = _members(folder, config, work, inputs=inputs)
        _refuse_secrets(members)
        manifest = _manifest(folder, config, inputs=inputs)
        write_archive(path, {_MANIFEST: _encoded(manifest), **members})
    return Exported(
        path=path,
        run=folder.id,
        has_inputs=inputs,
        lacking=lacking,
        code=tuple(name for name in names if name.endswith(".py")),
        bytes=path.stat().st_size,
    )


def _members(
    folder: RunFolder, config: Mapping[str, Json], work: Path, *, inputs: bool
) -> dict[str, bytes | Path]:
    members: dict[str, bytes | Path] = {
        f"{_RUN}{folder.config.name}": _encoded(moved_origin(config))
    }
    paths = [folder.events, folder.result, folder.frontier, folder.ledger]
    if inputs:
        paths += [folder.journal, folder.cases, *sorted(folder.files.glob("*"))]
    elif folder.journal.exists():
        members[f"{_RUN}{folder.scores.name}"] = "".join(_scores(folder)).encode()
        members[f"{_RUN}{folder.journal.name}"] = _header(folder)
        paths.remove(folder.events)
        members[f"{_RUN}{folder.events.name}"] = b"".join(_events_without_inputs(folder))
    members |= {
        f"{_RUN}{file.relative_to(folder.path).as_posix()}": file
        for file in paths
        if file.is_file()
    }
    if (sources := work / folder.sources.name).exists():
        members[f"{_RUN}{sources.name}"] = sources
    return members


def _sources(
    folder: RunFolder, config: Mapping[str, Json], work: Path, *, inputs: bool
) -> tuple[str, tuple[str, ...]]:
    """Pack the files of the project that the run has kept, or else the present ones.

    Returns what is lacking, and the names of the files.
    """
    origin = Origin(folder, config)
    if not origin.is_project:
        return f"it was made by the job {origin.name}, whose code is not known", ()
    whole = folder.sources
    if not whole.exists():
        whole = work / "present.zip"
        try:
            project = open_project(origin.project_file(None))
            with beside(project.folder):
                # Imports all code that a run would: only then does `sources_of` find it.
                project.stand_in()
                project.job(origin.name)
                write_archive(whole, sources_of(project).files)
        except (ConfigError, DataFormatError) as error:
            return str(error), ()
    archive = read_sources(whole, archive_budget())
    # Files of other kinds may hold cases, or be made from them.
    names = [
        name
        for name in archive.names
        if inputs or name == origin.file_name or name.endswith((".md", ".py"))
    ]
    with temporary_folder() as unpacked:
        archive.unpack(unpacked, {name: name for name in names})
        members = {name: unpacked / name for name in names}
        write_archive(work / folder.sources.name, members)
    return "", tuple(names)


def _manifest(folder: RunFolder, config: Mapping[str, Json], *, inputs: bool) -> dict[str, Json]:
    cases: dict[str, Json] = {}
    if header := _header(folder):
        cases = dict(header_contents(header).get("dataset", {}))
    return {
        "version": VERSION,
        "run": folder.id,
        "promptgraft": config.get("promptgraft"),
        "python": config.get("python", platform.python_version()),
        "inputs": inputs,
        "cases": cases,
    }


def _header(folder: RunFolder) -> bytes:
    """Return the first line of the journal, which has digests only; empty without one."""
    if not folder.journal.exists():
        return b""
    with folder.journal.open("rb") as file:
        return file.readline()


def _scores(folder: RunFolder) -> Iterator[str]:
    """Yield a line for each answer: where, of which case, how good, for how much; no texts."""
    with folder.journal.open("rb") as file:
        file.readline()
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                record = decode_record(line)
            except JournalCorruptError as error:
                raise JournalCorruptError(
                    f"{folder.journal}: {error}; restore it from a copy"
                ) from None
            if record.kind == SENT:
                continue
            answer = record.answer if isinstance(record.answer, dict) else {}
            feedback = answer.get("feedback")
            figures = feedback if isinstance(feedback, dict) else {}
            plain = {
                "key": record.key,
                "digest": record.digest,
                "kind": record.kind,
                "case": answer.get("example_id"),
                "score": figures.get("score"),
                "objectives": figures.get("objectives"),
                "spent": answer.get("spent"),
            }
            yield json.dumps(plain, separators=(",", ":")) + "\n"


_QUOTING: Mapping[type[Event], str] = {
    CaseTaught: "expected",
    round_events.RoundTrained: "reason",
    round_events.StepBlamed: "text",
    round_events.GradientsMerged: "text",
    round_events.QuestionUnanswered: "detail",
}
"""The key, at any depth, of the texts of an event that quote cases, answers or judgements."""


def _events_without_inputs(folder: RunFolder) -> Iterator[bytes]:
    """Yield the lines of events, without texts that quote a case."""
    keys = {kind.__struct_config__.tag: key for kind, key in _QUOTING.items()}
    if not folder.events.exists():
        return
    for line in folder.events.read_bytes().splitlines(keepends=True):
        event = parse_json(line, where=str(folder.events))
        key = keys.get(str(event.get("event"))) if isinstance(event, dict) else None
        yield line if key is None else f"{encoded_json(_without(event, key))}\n".encode()


def _without(value: Json, key: str) -> Any:
    """Return plain data with the texts under a key left empty."""
    if isinstance(value, list):
        return [_without(item, key) for item in value]
    if isinstance(value, dict):
        return {name: "" if name == key else _without(item, key) for name, item in value.items()}
    return value


def _encoded(document: Mapping[str, Json]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _refuse_secrets(members: Mapping[str, bytes | Path]) -> None:
    secrets = known_secrets()
    for name, content in members.items():
        if any(holds_secret(line, secrets) for line in _lines(content)):
            raise ConfigError(
                f"{name.removeprefix(_RUN)} holds the value of an environment variable with a key; "
                "nothing was written: find out how it got there"
            )


def _lines(content: bytes | Path) -> Iterable[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        yield from file


@attrs.frozen(kw_only=True)
class Unpacked:
    """An exported run that was unpacked.

    Attributes:
        folder: the run.
        project: the folder of its project, which may lack the project's files.
        has_inputs: whether it has a journal, so that it can be replayed and resumed.
        code: the Python files of its project, which are the sender's.
    """

    folder: RunFolder
    project: Path
    has_inputs: bool
    code: tuple[str, ...]


def is_export(path: Path) -> bool:
    """Return whether a path is a file that may be an exported run, by its name."""
    return path.suffix == ENDING and path.is_file()


def unpack_run(path: Path, target: Path) -> Unpacked:
    """Unpack an exported run: the files of its project, and the run in `runs` below them.

    Args:
        path: the file.
        target: a folder, which must not exist.

    Raises:
        ConfigError: the folder exists.
        DataFormatError: the file is damaged, unsafe, or no exported run; nothing is left then.
        OSError: a file cannot be read or written.
    """
    budget = archive_budget()
    archive = read_archive(path, budget)
    run, has_inputs = _run_in(archive)
    names = {name: name.removeprefix(_RUN) for name in archive.names if name.startswith(_RUN)}
    if unknown := [place for place in names.values() if not _is_of_run(place)]:
        raise DataFormatError(
            f"{path}: member {shown(unknown[0])}: expected a file of a run; nothing was unpacked"
        )
    try:
        target.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"{target} already exists; nothing was written; move it away") from None
    try:
        folder = RunFolder(target / "runs" / run)
        archive.unpack(folder.path, names)
        code: tuple[str, ...] = ()
        if folder.sources.exists():
            sources = read_sources(folder.sources, budget)
            sources.unpack(target, {name: name for name in sources.names})
            code = tuple(name for name in sources.names if name.endswith(".py"))
        moved = moved_origin(read_document(folder.config), f"{target.absolute()}/")
        folder.config.write_bytes(_encoded(moved))
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(target)
        raise
    return Unpacked(folder=folder, project=target, has_inputs=has_inputs, code=code)


def _run_in(archive: Archive) -> tuple[str, bool]:
    """Return the id of the run in an archive, and whether it has inputs."""
    match parse_json(archive.read(_MANIFEST), where=f"{archive.path}: {_MANIFEST}"):
        case {"version": version, "run": str(run), "inputs": bool(inputs)}:
            if version != VERSION:
                raise DataFormatError(
                    f"{archive.path}: expected version {VERSION}, found {shown(version)}; use the "
                    "version of promptgraft that wrote it"
                )
            if RUN_ID.fullmatch(run):
                return run, inputs
    raise DataFormatError(f"{archive.path}: expected an exported run, found another document")


def _is_of_run(place: str) -> bool:
    run = RunFolder(Path())
    paths = (
        run.config,
        run.journal,
        run.cases,
        run.events,
        run.result,
        run.frontier,
        run.ledger,
        run.sources,
        run.scores,
    )
    parts = place.split("/")
    return Path(place) in paths or (len(parts) == 2 and parts[0] == FOLDER)

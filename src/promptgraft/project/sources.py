"""The files that a run of a project was made from, kept in its folder as one archive.

With them the run can be replayed, exported and resumed after the project has changed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.adapters.providers import KNOWN
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.dataset import file_and_case
from promptgraft.ground.archive import Archive, read_archive, write_archive
from promptgraft.ground.content import files_in
from promptgraft.ground.environment import REFERENCE
from promptgraft.ground.files import is_file
from promptgraft.ground.functions import is_own
from promptgraft.ground.serde import looks_like_a_key, shown
from promptgraft.ground.work import WorkBudget
from promptgraft.overrides.revision_files import FOLDER as STORE
from promptgraft.project.project import Project

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
    for name in filter(None, (config.dataset.path, *(config.splits.files or {}).values())):
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
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and is_own(file):
            path = Path(file).resolve()
            if path.is_relative_to(folder.resolve()) and is_file(path):
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

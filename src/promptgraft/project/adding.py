"""What installed packages add to project files by name: trackers, executors and stores.

A store is a folder, or is opened by the URL that a project file has.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self, TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.entry_points import Group, load
from promptgraft.ground.environment import Secret
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict.checks import PATH, TEXT, Check, Kind, Reach, Schema, check
from promptgraft.ground.strict.kinds import checked, record_of
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.overrides.local_store import LocalPromptOverridesStore
from promptgraft.overrides.parts.validation import check_tag
from promptgraft.overrides.revision_files import FOLDER
from promptgraft.overrides.revisioned import RevisionedStore
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.files import source_file
from promptgraft.project.python_source import PythonSource, Surroundings
from promptgraft.runtime.session import EventBus


class Setting:
    """A value that a project file names by what a package has registered, with its settings."""

    @classmethod
    def kind(cls) -> Kind[Self]:
        """Return how its settings are read from a file; by default, as those of an attrs class."""
        return record_of(cls)


class Tracker(Setting, ABC):
    """A further place to report runs to.

    A package registers a subclass, an attrs class whose fields are its settings, under the entry
    point group ``promptgraft.trackers``. Its docstring is its description in the JSON Schema.
    """

    def check(self) -> None:
        """Raise a ``ConfigError`` if a package that it needs is missing or too old."""

    @abstractmethod
    def reported(
        self, bus: EventBus, *, key: str, folder: Path | None
    ) -> AbstractContextManager[None]:
        """Report the run that publishes to ``bus`` while the context is open.

        Args:
            bus: the event bus of the run.
            key: unique to the run; a run resumed with the same key continues its tracked run.
            folder: the run directory, to be uploaded with the run; None if there is none.

        Raises:
            ConfigError: a package is missing, or the server refuses the run.
        """

    @classmethod
    def joined(cls, bus: EventBus) -> AbstractContextManager[None]:
        """Report a run as the process itself has been set up to, without settings."""
        return contextlib.nullcontext()


class Workers(Setting, ABC):
    """Where rollouts run in place of threads.

    A package registers a subclass under the entry point group ``promptgraft.executors``.
    """

    @abstractmethod
    def connected(
        self, *, code: Path | None, at_once: int | None, say: Callable[[str], object] | None
    ) -> Executor:
        """Return an executor of rollouts.

        Args:
            code: a folder with modules that the workers do not have; None if there is none.
            at_once: maximum of calls under way; None for as many as the workers take.
            say: called with a line about each lost worker.

        Raises:
            ConfigError: a package is missing, or the workers cannot be reached.
        """


TRACKER_GROUP = Group("promptgraft.trackers", "tracker", Tracker)  # type: ignore[type-abstract]  # mypy#4717
EXECUTOR_GROUP = Group("promptgraft.executors", "executor", Workers)  # type: ignore[type-abstract]  # mypy#4717

T = TypeVar("T", bound=Setting)


def _by_name(group: Group[T], definition: str) -> Kind[dict[str, T]]:
    """Return the kind of objects that name members of a group: ``{mlflow: {uri: ...}}``."""

    def read(node: Node) -> dict[str, T] | None:
        if not isinstance(node.value, dict):
            node.expected("an object")
            return None
        values = {}
        for name, member in node.members().items():
            try:
                values[name] = group.load(name).kind().read(member)
            except ConfigError as error:
                member.fault(str(error))
        settings = {name: value for name, value in values.items() if value is not None}
        return settings if node.is_right() else None

    # A reference, because reading a project file must not import all packages of the group.
    return Kind(read, {"$ref": f"#/$defs/{definition}"}, reach=Reach.ADDRESS)


TRACKERS: Kind[dict[str, Tracker]] = _by_name(TRACKER_GROUP, "trackers")
_EXECUTORS: Kind[dict[str, Workers]] = _by_name(EXECUTOR_GROUP, "executor")


def _one_executor(node: Node) -> Workers | None:
    if not isinstance(node.value, dict) or len(node.value) != 1:
        node.expected("an object with the name of one executor")
        return None
    return next(iter((_EXECUTORS.read(node) or {}).values()), None)


EXECUTOR: Kind[Workers] = Kind(_one_executor, _EXECUTORS.schema, reach=_EXECUTORS.reach)


def definitions() -> dict[str, Json]:
    """Return the JSON Schemas of trackers and executors, of all packages that are installed."""
    return {
        "trackers": _schema(TRACKER_GROUP),
        "executor": {**_schema(EXECUTOR_GROUP), "minProperties": 1, "maxProperties": 1},
    }


def _schema(group: Group[T]) -> Schema:
    members: dict[str, Json] = {}
    for name in group.names:
        try:
            member = group.load(name)
        except ConfigError as error:  # of one package, while the schema is that of all
            members[name] = {"description": f"({error})"}
            continue
        about = inspect.cleandoc(member.__doc__ or "").partition("\n")[0]
        members[name] = {"description": about, **member.kind().schema}
    return {"type": "object", "properties": members, "additionalProperties": False}


def executor_named(name: str, value: str, option: str) -> Workers:
    """Return the executor that an option of the command line names.

    Raises:
        DataFormatError: the value is no address of such an executor.
    """
    source = Source.of({name: value}, option)
    workers = EXECUTOR.read(source.root)
    source.raise_all()
    assert workers is not None  # noqa: S101 - what has no fault is read
    return workers


@contextlib.contextmanager
def tracking(
    trackers: Mapping[str, Tracker], bus: EventBus, *, key: str, folder: Path | None = None
) -> Iterator[None]:
    """Report the run that publishes to ``bus`` to the trackers while the context is open.

    In a process that is instrumented with OpenTelemetry, the run is traced in any case. The other
    arguments are those of :meth:`Tracker.reported`.

    Raises:
        ConfigError: a package is missing, or the server refuses the run.
    """
    with contextlib.ExitStack() as stack:
        if "opentelemetry" not in trackers:
            stack.enter_context(traced(bus))
        for tracker in trackers.values():
            reported: object = tracker.reported(bus, key=key, folder=folder)
            if not isinstance(reported, AbstractContextManager):
                raise _unfit(tracker, "reported", "a context manager", reported)
            stack.enter_context(reported)
        yield


def _unfit(setting: Setting, method: str, expected: str, value: object) -> ConfigError:
    """Return the error for what a method of another package has returned."""
    kind = type(setting)
    return ConfigError(
        f"{kind.__module__}:{kind.__name__}.{method}: expected {expected}, returned {shown(value)}"
    )


def traced(bus: EventBus) -> AbstractContextManager[None]:
    """Return a context in which a process that is instrumented traces the run of ``bus``."""
    # Without the API in memory nobody can have configured a tracer.
    if "opentelemetry.trace" not in sys.modules:
        return contextlib.nullcontext()
    return TRACKER_GROUP.load("opentelemetry").joined(bus)


def check_trackers(trackers: Mapping[str, Tracker]) -> None:
    """Raise a ``ConfigError`` if the package of a tracker is missing or too old."""
    for tracker in trackers.values():
        tracker.check()


@contextlib.contextmanager
def cluster(
    workers: Workers | None,
    *,
    code: Path | None,
    at_once: int | None = None,
    say: Callable[[str], object] | None = None,
) -> Iterator[Executor | None]:
    """Provide the executor that a project configures; None if it uses threads.

    The other arguments are those of :meth:`Workers.connected`. On exit, unfinished calls are
    abandoned.
    """
    if workers is None:
        yield None
        return
    executor: object = workers.connected(code=code, at_once=at_once, say=say)
    if not isinstance(executor, Executor):
        raise _unfit(workers, "connected", "a concurrent.futures.Executor", executor)
    try:
        yield executor
    finally:
        # Without waiting, because a worker that hangs would hold up the end of the command.
        executor.shutdown(wait=False)


# A password that is a reference, `${NAME}`, is no secret.
_PASSWORD = re.compile(r"://[^/@\s]*:(?!\$\{)[^/@\s]+@")
STORE_GROUP = "promptgraft.stores"
"""The entry point group in which packages register stores by the scheme of their URLs."""


def _url(value: object) -> str | None:
    if not isinstance(value, str) or not ("://" in value or Secret(value).names):
        return None
    # The project file is shared and recorded in every run.
    return None if _PASSWORD.search(value) else value


STORE_URL: Check[str] = check(
    "the URL of a database such as `sqlite:///overrides.db`, or `${NAME}`",
    _url,
    {"type": "string"},
    hidden=True,
    mend="put a URL with a password into an environment variable and name that",
).reaching(Reach.ADDRESS)
"""The URL of a store in a database; a plain password is refused."""


TAG = checked(TEXT, check_tag, {"pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"})


@attrs.frozen(kw_only=True)
class StoreConfig:
    """The store that winners are written to and searches start from.

    Attributes:
        path: The folder that holds `.promptgraft`. If it is left out, jobs use their database.
        url: A database instead, such as `sqlite:///FILE` or `${DATABASE_URL}`.
        tag: The tag of winners.
    """

    path: str = "."
    url: str | None = None
    tag: str = DEFAULT_TAG


def database_store(url: str, folder: Path | None = None) -> RevisionedStore:
    """Return the store that a package opens at a URL.

    A package registers a function of the URL and of the folder that relative paths are below
    under the entry point group ``promptgraft.stores``, by the scheme of its URLs.

    Raises:
        ConfigError: no package opens such URLs, the URL is invalid, or a variable is not set.
    """
    plain = Secret(url).reveal()
    scheme = plain.partition(":")[0].partition("+")[0]
    offer = load(STORE_GROUP, scheme, noun="kind of store")
    if not callable(offer.value):
        raise offer.unfit("a function that opens a store")
    store = offer.value(plain, folder)
    if not isinstance(store, RevisionedStore):
        raise ConfigError(
            f"{offer.where}: expected to return a RevisionedStore, found {shown(store)}"
        )
    return store


def open_store(named: str | None) -> RevisionedStore:
    """Return the store that ``--store`` names: a folder, or the URL of a database.

    Without a name, return the store that the current folder belongs to.

    Raises:
        ConfigError: there is no such folder, or the URL is invalid.
    """
    if named is None:
        return LocalPromptOverridesStore()
    if "://" in named:
        return database_store(named)
    path = Path(named)
    # Users also name the folder `.promptgraft` itself.
    if path.name == FOLDER.parts[0]:
        path = path.parent
    if not path.is_dir():
        raise ConfigError(f"--store: expected a folder, found {named!r}; name one that exists")
    return LocalPromptOverridesStore(path)


STORE: Kind[StoreConfig] = record_of(
    StoreConfig, special={"path": PATH, "url": STORE_URL, "tag": TAG}
)


def store_of(path: Path) -> RevisionedStore:
    """Return the store of a project, without checking the rest of its file.

    Raises:
        DataFormatError: the file is not YAML, or ``store`` has faults.
    """
    source = source_file(path)
    node = source.root.member("store")
    config = StoreConfig() if node.value is None else STORE.read(node)
    source.raise_all()
    assert config is not None  # noqa: S101 - what has no fault is read
    around = Surroundings(source, path.parent, PythonSource(path.parent))
    return project_store(config, path.absolute().parent, around)


def project_store(config: StoreConfig, folder: Path, around: Surroundings) -> RevisionedStore:
    """Return the store of a project.

    Raises:
        DataFormatError: its folder does not exist, or its URL is invalid; with the place in the
            file.
    """
    try:
        if config.url is not None:
            return database_store(config.url, folder)
        return LocalPromptOverridesStore(folder / config.path)
    except ConfigError as error:
        key = "path" if config.url is None else "url"
        why = str(error).removeprefix("root_path: ").removeprefix("url: ")
        raise around.refusal(("store", key), why) from error

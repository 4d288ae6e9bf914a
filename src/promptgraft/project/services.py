"""The services around a project: stores of winners, trackers of runs, and a dask cluster."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptgraft.adapters.calling.access import is_address
from promptgraft.errors import ConfigError
from promptgraft.ground.environment import Secret, check_package
from promptgraft.ground.strict.checks import TEXT, Check, Kind, Reach, check
from promptgraft.ground.strict.kinds import record_of
from promptgraft.overrides.base_store import RevisionedStore
from promptgraft.overrides.local_store import LocalPromptOverridesStore
from promptgraft.overrides.revision_files import FOLDER
from promptgraft.overrides.store import DEFAULT_TAG

if TYPE_CHECKING:
    from promptgraft.project.parts import Surroundings


# A password that is a reference, `${NAME}`, is no secret.
_PASSWORD = re.compile(r"://[^/@\s]*:(?!\$\{)[^/@\s]+@")
_FILE = "sqlite:///"
_IN_MEMORY = ("sqlite://", _FILE, f"{_FILE}:memory:")


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


@attrs.frozen(kw_only=True)
class StoreConfig:
    """The store that winners are written to and searches start from.

    Attributes:
        path: The folder that holds `.promptgraft`.
        url: A database instead, such as `sqlite:///FILE` or `${DATABASE_URL}`.
        tag: The tag of winners.
    """

    path: str = "."
    url: str | None = None
    tag: str = DEFAULT_TAG


def database_store(url: str, folder: Path | None = None) -> RevisionedStore:
    """Return the store in a database; a relative SQLite file is below ``folder``.

    Raises:
        ConfigError: the URL is invalid, a variable in it is not set, or the extra is missing.
    """
    plain = Secret(url).reveal()
    path = plain.removeprefix(_FILE)
    if plain in _IN_MEMORY:
        raise ConfigError(
            f"{plain} is a database in memory, which is empty again in the next command; name a "
            "file, as in sqlite:///winners.db"
        )
    if folder is not None and path != plain and path and not path.startswith("/"):
        # Relative to the project, as all paths in its file, and not to the current folder.
        plain = f"{_FILE}{folder / path}"
    try:
        from promptgraft.service.database import SqlPromptOverridesStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'a store in a database needs {error.name}; run `pip install "promptgraft[server]"`'
        ) from None
    return SqlPromptOverridesStore(plain)


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


_URI = check(
    "the address or database of a server, such as `http://localhost:5000`",
    lambda value: value if isinstance(value, str) and value.strip() and "@" not in value else None,
    {"type": "string"},
    hidden=True,
    mend="user and password are those of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
).reaching(Reach.ADDRESS)
_ENDPOINT = check(
    "the address of a collector, such as `http://localhost:4318`",
    lambda value: (
        value if isinstance(value, str) and is_address(value) and "@" not in value else None
    ),
    {"type": "string"},
    hidden=True,
    mend="keys for it stand in OTEL_EXPORTER_OTLP_HEADERS",
).reaching(Reach.ADDRESS)


def check_mlflow() -> None:
    """Raise a ``ConfigError`` if MLflow is missing or too old."""
    check_package("mlflow-skinny", "3.4", extra="mlflow", what="tracking in MLflow")


def check_wandb() -> None:
    """Raise a ``ConfigError`` if Weights & Biases is missing or too old."""
    check_package("wandb", "0.19", extra="wandb", what="tracking in Weights & Biases")


def check_otlp() -> None:
    """Raise a ``ConfigError`` if OpenTelemetry cannot export spans."""
    package = "opentelemetry-exporter-otlp-proto-http"
    check_package(package, "1.30", extra="otel", what="sending spans")


@attrs.frozen(kw_only=True)
class MlflowConfig:
    """Reports each run as a run of MLflow.

    Attributes:
        uri: The tracking server or database; by default as MLflow finds it.
        experiment: The experiment; created if it does not exist.
    """

    uri: str | None = None
    experiment: str = "promptgraft"


@attrs.frozen(kw_only=True)
class WandbConfig:
    """Reports each run as a run of Weights & Biases; server and key come from the environment.

    Attributes:
        project: The project; created if it does not exist.
    """

    project: str = "promptgraft"


@attrs.frozen(kw_only=True)
class TelemetryConfig:
    """Reports each run as a span, with the spans of its calls below it.

    Attributes:
        endpoint: The OTLP collector; by default, that of the environment or of the instrumented
            process.
        content: Whether the spans contain what was sent and received.
    """

    endpoint: str | None = None
    content: bool | None = None


@attrs.frozen(kw_only=True)
class TrackersConfig:
    """Further places to report runs of `optimize` and `resume`, and jobs, to.

    Attributes:
        mlflow: A run of MLflow for each.
        wandb: A run of Weights & Biases for each.
        opentelemetry: Spans over OTLP.
    """

    mlflow: MlflowConfig | None = None
    wandb: WandbConfig | None = None
    opentelemetry: TelemetryConfig | None = None

    def check(self) -> None:
        """Raise a ``ConfigError`` if the package of a configured tracker is missing or too old."""
        if self.mlflow is not None:
            check_mlflow()
        if self.wandb is not None:
            check_wandb()
        if self.opentelemetry is not None:
            check_otlp()


TRACKERS: Kind[TrackersConfig] = record_of(
    TrackersConfig,
    special={
        "mlflow": record_of(MlflowConfig, special={"uri": _URI, "experiment": TEXT}).reaching(
            Reach.ADDRESS
        ),
        # Its server and key come from the environment.
        "wandb": record_of(WandbConfig, special={"project": TEXT}).reaching(Reach.ADDRESS),
        "opentelemetry": record_of(TelemetryConfig, special={"endpoint": _ENDPOINT}).reaching(
            Reach.ADDRESS
        ),
    },
)


_CLUSTER = r"^[a-z]+://[^\s/@]+:[0-9]+$"


@attrs.frozen(kw_only=True)
class ExecutorConfig:
    """A cluster that runs rollouts in place of threads.

    Attributes:
        dask: Address of the scheduler of a dask cluster.
    """

    dask: str


EXECUTOR: Kind[ExecutorConfig] = record_of(
    ExecutorConfig,
    special={
        "dask": check(
            "the address of a dask scheduler such as `tcp://10.0.0.5:8786`",
            lambda value: value if isinstance(value, str) and re.search(_CLUSTER, value) else None,
            {"type": "string", "pattern": _CLUSTER},
        ).reaching(Reach.ADDRESS)
    },
)


@contextlib.contextmanager
def cluster(
    config: ExecutorConfig | None,
    *,
    code: Path | None,
    at_once: int | None = None,
    say: Callable[[str], object] | None = None,
) -> Iterator[Executor | None]:
    """Provide the executor that a project configures; None if it uses threads.

    The other arguments are those of ``DaskExecutor``. On exit, unfinished calls are abandoned.
    """
    if config is None:
        yield None
        return
    from promptgraft.runtime.dask import DaskExecutor

    executor = DaskExecutor(config.dask, at_once=at_once, code=code, say=say)
    try:
        yield executor
    finally:
        # Without waiting, because a worker that hangs would hold up the end of the command.
        executor.shutdown(wait=False)

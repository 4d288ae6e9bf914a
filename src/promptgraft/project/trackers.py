"""Where runs of a project are shown besides their folders: MLflow, and spans of OpenTelemetry."""

from __future__ import annotations

import attrs

from promptgraft.adapters.calling.access import is_address
from promptgraft.environment import check_package
from promptgraft.strict.checks import TEXT, Kind, check
from promptgraft.strict.kinds import record_of

_URI = check(
    "the address or database of a server, such as `http://localhost:5000`",
    lambda value: value if isinstance(value, str) and value.strip() and "@" not in value else None,
    {"type": "string"},
    hidden=True,
    mend="user and password are those of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
)
_ENDPOINT = check(
    "the address of a collector, such as `http://localhost:4318`",
    lambda value: (
        value if isinstance(value, str) and is_address(value) and "@" not in value else None
    ),
    {"type": "string"},
    hidden=True,
    mend="keys for it stand in OTEL_EXPORTER_OTLP_HEADERS",
)


def check_mlflow() -> None:
    """Raise a ``ConfigError`` where MLflow is missing or too old."""
    check_package("mlflow-skinny", "3.4", extra="mlflow", what="tracking in MLflow")


def check_wandb() -> None:
    """Raise a ``ConfigError`` where Weights & Biases is missing or too old."""
    check_package("wandb", "0.19", extra="wandb", what="tracking in Weights & Biases")


def check_otlp() -> None:
    """Raise a ``ConfigError`` where OpenTelemetry cannot send spans."""
    package = "opentelemetry-exporter-otlp-proto-http"
    check_package(package, "1.30", extra="otel", what="sending spans")


@attrs.frozen(kw_only=True)
class MlflowConfig:
    """Each run is one of MLflow.

    Attributes:
        uri: The tracking server or database; by default as MLflow finds it.
        experiment: The experiment; made when there is none.
    """

    uri: str | None = None
    experiment: str = "promptgraft"


@attrs.frozen(kw_only=True)
class WandbConfig:
    """Each run is one of Weights & Biases; the environment says where, and has the key.

    Attributes:
        project: The project; made when there is none.
    """

    project: str = "promptgraft"


@attrs.frozen(kw_only=True)
class TelemetryConfig:
    """Each run is a span, with those of its calls below it.

    Attributes:
        endpoint: The OTLP collector; by default spans go where the environment or the process that
            is instrumented sends them.
        content: Whether the spans hold what was sent and received.
    """

    endpoint: str | None = None
    content: bool | None = None


@attrs.frozen(kw_only=True)
class TrackersConfig:
    """Where runs of `optimize` and `resume`, and jobs, are shown besides.

    Attributes:
        mlflow: A run of MLflow for each.
        wandb: A run of Weights & Biases for each.
        opentelemetry: Spans over OTLP.
    """

    mlflow: MlflowConfig | None = None
    wandb: WandbConfig | None = None
    opentelemetry: TelemetryConfig | None = None

    def check(self) -> None:
        """Raise a ``ConfigError`` where a package is missing or too old."""
        if self.mlflow is not None:
            check_mlflow()
        if self.wandb is not None:
            check_wandb()
        if self.opentelemetry is not None:
            check_otlp()


TRACKERS: Kind[TrackersConfig] = record_of(
    TrackersConfig,
    special={
        "mlflow": record_of(MlflowConfig, special={"uri": _URI, "experiment": TEXT}),
        "wandb": record_of(WandbConfig, special={"project": TEXT}),
        "opentelemetry": record_of(TelemetryConfig, special={"endpoint": _ENDPOINT}),
    },
)

"""What makes the rollouts of a project in place of threads: a dask cluster."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import attrs

from promptgraft.strict.checks import Kind, check
from promptgraft.strict.kinds import record_of

_CLUSTER = r"^[a-z]+://[^\s/@]+:[0-9]+$"


@attrs.frozen(kw_only=True)
class ExecutorConfig:
    """What makes rollouts in place of threads.

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
        )
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
    """Give what a project names in place of threads; None where it names nothing.

    What does not end is left behind. The rest is as for ``DaskExecutor``.
    """
    if config is None:
        yield None
        return
    from promptgraft.runtime.dask import DaskExecutor

    executor = DaskExecutor(config.dask, at_once=at_once, code=code, say=say)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)

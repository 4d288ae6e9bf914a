"""The JSON document of what a run was started with."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import attrs

from promptgraft import __version__
from promptgraft.adapters.base import adapter_identity
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, unstructure
from promptgraft.overrides.revisioned import RevisionedStore
from promptgraft.search.job import OptimizationJob
from promptgraft.search.settings import Settings

_EXAMPLES = ("training_examples", "held_out")


def run_config(
    job: OptimizationJob,
    *,
    origin: Mapping[str, Json],
    settings: Mapping[str, Json],
    options: Mapping[str, Json],
) -> dict[str, Json]:
    """Return the content of ``config.json``, without the keys that :func:`make_run` adds.

    Args:
        job: the job.
        origin: where the job came from, so that it can be made again.
        settings: the settings of the project, or the result of :func:`described_job`.
        options: what the command line changed, so that it can be changed again.
    """
    return {
        "promptgraft": __version__,
        "python": platform.python_version(),
        "prompt": job.name,
        "origin": {**origin},
        "options": {**options},
        "settings": {**settings},
        "plan": job.plan().as_json(),
    }


def described_job(job: OptimizationJob) -> dict[str, Json]:
    """Describe a job without disclosing data or secrets.

    Examples are counted; functions and objects that are not promptgraft's own are only named.
    """
    context = job.context
    store = context.overrides_store
    return {
        "models": {
            "task": adapter_identity(context.adapter) if context.adapter else job.name,
            "reflection": adapter_identity(context.proposing_adapter),
        },
        "store": store.place if isinstance(store, RevisionedStore) else None,
        "tag": context.overrides_tag,
        "optimizer": _settings(job.config),
    }


def _settings(settings: Settings) -> dict[str, Json]:
    return {
        name: len(value) if name in _EXAMPLES and value is not None else _safe(value)
        for name, value in attrs.asdict(settings, recurse=False).items()
    }


def _safe(value: object) -> Json:
    if isinstance(value, Settings):
        return {**_settings(value)}
    if isinstance(value, tuple):
        return [_safe(item) for item in value]
    # The `repr` of foreign objects may contain data or secrets.
    if callable(value) or attrs.has(type(value)):
        return _named(value)
    try:
        return unstructure(value)
    except DataFormatError:
        return str(value)


def _named(value: object) -> str:
    kind = type(value)
    if kind.__module__.startswith("promptgraft."):
        return repr(value)
    module = getattr(value, "__module__", kind.__module__)
    return f"{module}.{getattr(value, '__qualname__', kind.__qualname__)}"

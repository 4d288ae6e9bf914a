"""The settings of a project as plain data, to be kept with a run."""

from __future__ import annotations

import copy

import attrs

from promptgraft.algorithms import DEFAULT, algorithm
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.config import DEFAULT_WORKERS, RatioConfig
from promptgraft.project.files import DEFAULT_RUNS
from promptgraft.project.format_optimizer import ELSEWHERE
from promptgraft.serde import Json


def described(written: Json) -> dict[str, Json]:
    """Return what a right project file says, with the defaults filled in.

    Secrets stand in it as they stand in the file: as ``${NAME}``.
    """
    given = copy.deepcopy(_object(written))
    optimizer = _object(given.get("optimizer"))
    size: dict[str, Json] = {} if "rollout_budget" in optimizer else {"auto": "light"}
    return {
        **given,
        "splits": _splits(_object(given.get("splits"))),
        "optimizer": {
            **_defaults(str(optimizer.get("algorithm", DEFAULT))),
            **size,
            **optimizer,
        },
        "stoppers": given.get("stoppers") or [],
        "store": {"path": ".", "tag": DEFAULT_TAG, **_object(given.get("store"))},
        "runs": given.get("runs", DEFAULT_RUNS),
        "workers": given.get("workers", DEFAULT_WORKERS),
    }


def _defaults(name: str) -> dict[str, Json]:
    """Return the settings of an algorithm that have a plain default."""
    config = algorithm(name)
    found: dict[str, Json] = {"algorithm": name}
    for field in attrs.fields(config):
        default: object = config.in_projects.get(field.name, field.default)
        if field.name in ELSEWHERE or field.name in ("auto", "rollout_budget"):
            continue
        if isinstance(default, (bool, int, float, str)):
            found[field.name] = str(default) if isinstance(default, str) else default
    return found


def _splits(given: dict[str, Json]) -> dict[str, Json]:
    if "files" in given or "field" in given:
        return given
    return {"ratio": _object(attrs.asdict(RatioConfig())), "seed": 0, **given}


def _object(value: Json) -> dict[str, Json]:
    """Return the members of an object that have a value; the others count as left out."""
    members = value if isinstance(value, dict) else {}
    return {name: member for name, member in members.items() if member is not None}

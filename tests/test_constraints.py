"""``.ci/constraints.txt`` has names and versions only, and one for all that developers install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def versions() -> dict[str, str]:
    lines = (ROOT / ".ci" / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [re.fullmatch(r"([\w.-]+)==([\w.!+-]+)", line) for line in lines]
    assert all(pairs), [line for line, pair in zip(lines, pairs, strict=True) if pair is None]
    return {_name(pair[1]): pair[2] for pair in pairs if pair is not None}


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_developers_install_has_a_version_that_fits() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    known = versions()
    misfits = [
        line
        for line in wanted
        for requirement in [Requirement(line)]
        if not requirement.specifier.contains(known.get(_name(requirement.name), "0"))
    ]
    assert misfits == []

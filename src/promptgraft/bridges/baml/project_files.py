"""Project files for ``promptgraft optimize --baml``: one for each function."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.project.files import FILE_NAME, ProjectFile
from promptgraft.project.parts import DEFAULT_REFLECTION, FormatOptions, named_options
from promptgraft.search.scores import weights_of

if TYPE_CHECKING:
    from promptgraft.bridges.baml.tests import BamlTest
    from promptgraft.search.settings import Size

_OBJECTIVES = {"accuracy": "score", "latency": "seconds"}
"""Our names of objectives that BAML's own optimizer names differently."""
_OWN = ("score", "asserts", "pass", "tokens", "prompt_tokens", "completion_tokens")
_FEW_TESTS = 5
_AMOUNTS = ("cost", "seconds")


def baml_projects(
    folder: Path, given: FormatOptions, *, auto: Size | None = None
) -> list[ProjectFile]:
    """Return the project file of each function that the options name, all by default.

    A single function has ``promptgraft.yaml`` beside the folder of BAML files, each of several a
    file with its own name in front of that.

    Raises:
        ConfigError: there is no such function, or an existing file is of another one.
    """
    names = list(dict.fromkeys(given["function"])) or _with_tests(folder)
    parent = folder.resolve().parent
    folder_shown = parent.relative_to(Path.cwd()) if parent.is_relative_to(Path.cwd()) else parent
    files = [FILE_NAME] if len(names) == 1 else [f"{name}.{FILE_NAME}" for name in names]
    return [
        _project_of(folder_shown / file, folder, name, given, budget=auto or "light")
        for name, file in zip(names, files, strict=True)
    ]


def _with_tests(folder: Path) -> list[str]:
    from promptgraft.bridges.baml.functions import tested_functions

    if names := tested_functions(folder):
        return list(names)
    raise ConfigError(f"--function: no function in {folder} has a test; write one, or name it")


def _project_of(
    path: Path, folder: Path, name: str, given: FormatOptions, *, budget: Size
) -> ProjectFile:
    if path.exists():
        _check_same(path, folder, name, given)
        return ProjectFile(path, None)
    from promptgraft.bridges.baml.functions import chosen_tests, load_function

    # Raises if a pattern matches no test, before anything is written.
    tests = chosen_tests(load_function(name, folder), given["test"])
    return ProjectFile(path, _settings(folder, name, tests, given, budget=budget))


def _check_same(path: Path, folder: Path, name: str, given: FormatOptions) -> None:
    """Refuse options that an existing project file contradicts or would ignore."""
    from promptgraft.project import open_project

    baml_config = open_project(path).config.baml
    if baml_config is None or (path.parent / baml_config.baml).resolve() != folder.resolve():
        raise ConfigError(f"--baml: {path} is of another prompt; name the function there")
    if baml_config.function != name:
        raise ConfigError(f"--function: {path} names `{baml_config.function}`; change it there")
    other_options = [option for option in named_options(given) if option != "--function"]
    if other_options:
        raise ConfigError(
            f"{other_options[0]}: {path} already exists; change it there, or remove it"
        )


def _settings(
    folder: Path,
    function: str,
    tests: tuple[BamlTest, ...],
    given: FormatOptions,
    *,
    budget: Size,
) -> Mapping[str, Json]:
    """Return the project file of a BAML function, as plain data."""
    weights = _weights(given["weights"], tests)
    chosen: dict[str, Json] = {"tests": list(given["test"])} if given["test"] else {}
    objectives: dict[str, Json] = {"objectives": {"weights": weights}} if weights else {}
    # The limits of names of prompts, see `NAME` in `project.format_agents`.
    key = re.sub("[^a-z0-9_-]", "-", function.lower())[:64]
    # The usual shares would leave the validation set of so few tests empty.
    halves: dict[str, Json] = {"splits": {"ratio": {"train": 0.5, "validation": 0.5}}}
    return {
        "version": 1,
        **(halves if len(tests) < _FEW_TESTS else {}),
        "prompts": {key: {"baml": folder.resolve().name, "function": function, **chosen}},
        "models": {"reflection": _model(given["reflection"] or DEFAULT_REFLECTION)},
        "optimizer": {"rollout_budget": budget, **objectives},
    }


def _weights(written: str | None, tests: tuple[BamlTest, ...]) -> dict[str, Json]:
    """Return weights by objective; a check may be named alone."""
    checks = {rule.name for test in tests for rule in test.rules if not rule.is_assert}
    weight_names = {*_OWN, *_AMOUNTS, *(f"check:{name}" for name in checks)}
    weights: dict[str, Json] = {}
    for name, weight in (weights_of(written, "--weights") if written else {}).items():
        objective = _OBJECTIVES.get(name, name)
        if objective not in weight_names and name in checks:
            objective = f"check:{name}"
        if objective not in weight_names:
            names = sorted({*weight_names, *_OBJECTIVES, *checks})
            raise ConfigError(
                f"--weights: there is no objective `{name}`{did_you_mean(name, names)}; "
                f"expected {', '.join(names)}"
            )
        weights[objective] = weight
    return weights


def _model(written: str) -> dict[str, Json]:
    provider, _, model = written.partition("/")
    if ":" in written:
        return {"python": written}
    if provider == "offline" and not model:
        return {"provider": provider}
    if provider not in ("openai", "anthropic") or not model:
        raise ConfigError(
            "--reflection: expected `openai/MODEL`, `anthropic/MODEL`, `offline` or "
            f"`file.py:NAME`, found {written!r}"
        )
    # A reference: the file is meant to be committed, so the key itself must not be in it.
    return {"provider": provider, "model": model, "api_key": f"${{{provider.upper()}_API_KEY}}"}

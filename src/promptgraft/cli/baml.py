"""``promptgraft optimize --baml DIR``: a project file for a BAML function that has none yet."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.exits import complain
from promptgraft.errors import ConfigError
from promptgraft.project.files import FILE_NAME
from promptgraft.serde import Json

_REFLECTION = "openai/gpt-5"
_OBJECTIVES = {"accuracy": "score", "latency": "seconds"}
"""What objectives are called where others have names of their own for them."""

_OPTIONS = options.together(
    click.option("--baml", metavar="DIR", help="A folder of BAML files, in place of a project."),
    click.option("--function", metavar="NAME", help="With --baml: the function to improve."),
    click.option(
        "--test",
        "tests",
        multiple=True,
        metavar="PATTERN",
        help="With --baml: tests to use, such as `ExtractReceipt::Short*`; all by default.",
    ),
    click.option(
        "--auto",
        type=click.Choice(("light", "medium", "heavy")),
        help="With --baml: how many rollouts the run may use; `light` by default.",
    ),
    click.option(
        "--weights",
        metavar="WEIGHTS",
        help="With --baml: what counts, such as `accuracy=0.8,tokens=0.2`; also latency, "
        "prompt_tokens, completion_tokens and check:NAME.",
    ),
    click.option(
        "--reflection",
        metavar="MODEL",
        help="With --baml: what proposes texts: `openai/MODEL`, `anthropic/MODEL`, `offline` or "
        f"`file.py:NAME`; by default {_REFLECTION}.",
    ),
)


@attrs.frozen(kw_only=True)
class _Given:
    """What the options say besides the folder."""

    function: str | None
    tests: tuple[str, ...]
    auto: str | None
    weights: str | None
    reflection: str | None

    def named(self) -> list[str]:
        """Return the options that are there, but for the function."""
        there = {"test": self.tests, "auto": self.auto, "weights": self.weights}
        return [
            f"--{name}" for name, one in (*there.items(), ("reflection", self.reflection)) if one
        ]


def baml_options(command: options.Command) -> options.Command:
    """Give a command ``--baml`` and what belongs to it: it gets ``target`` and ``project``."""

    @functools.wraps(command)
    def wrapped(
        *,
        baml: str | None,
        function: str | None,
        tests: tuple[str, ...],
        auto: str | None,
        weights: str | None,
        reflection: str | None,
        target: str | None,
        project: str | None,
        **others: object,
    ) -> int | None:
        given = _Given(
            function=function, tests=tests, auto=auto, weights=weights, reflection=reflection
        )
        if baml is None:
            if named := [*(["--function"] if function else []), *given.named()]:
                raise click.UsageError(f"{named[0]}: is for a BAML project; name it with --baml")
        elif target is not None or project is not None:
            raise click.UsageError("--baml: names the prompt; leave PROMPT and --project out")
        else:
            target, project = None, str(_project_of(Path(baml), given))
        return command(target=target, project=project, **others)

    return _OPTIONS(wrapped)


def _project_of(folder: Path, given: _Given) -> Path:
    """Return the project file beside a folder of BAML files; it is written if there is none."""
    if given.function is None:
        raise click.UsageError("--function: expected a function of the BAML project, found none")
    path = folder.resolve().parent / FILE_NAME
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    if path.exists():
        _check_same(shown, folder, given)
        return shown
    from promptgraft.baml.functions import chosen_tests, load_function

    chosen_tests(load_function(given.function, folder), given.tests)
    written = "".join(
        f"{name}: {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in _settings(folder, given.function, given).items()
    )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(written)
    except OSError as error:
        raise ConfigError(f"{shown} cannot be written: {error.strerror}") from error
    complain(f"wrote {shown}; change it to change the run")
    return shown


def _check_same(path: Path, folder: Path, given: _Given) -> None:
    from promptgraft.project import open_project

    found = open_project(path).config.baml
    if found is None or (path.parent / found.baml).resolve() != folder.resolve():
        raise ConfigError(f"--baml: {path} is of another prompt; name the function there")
    if found.function != given.function:
        raise ConfigError(f"--function: {path} names `{found.function}`; change it there")
    if named := given.named():
        raise ConfigError(f"{named[0]}: {path} is there already; change it there, or remove it")


def _settings(folder: Path, function: str, given: _Given) -> Mapping[str, Json]:
    from promptgraft.search.scores import weights_of

    weights = weights_of(given.weights, "--weights") if given.weights else {}
    named: dict[str, Json] = {_OBJECTIVES.get(one, one): value for one, value in weights.items()}
    tests: dict[str, Json] = {"tests": list(given.tests)} if given.tests else {}
    objectives: dict[str, Json] = {"objectives": {"weights": named}} if named else {}
    key = re.sub("[^a-z0-9_-]", "-", function.lower())[:64]
    return {
        "version": 1,
        "prompts": {key: {"baml": folder.resolve().name, "function": function, **tests}},
        "models": {"reflection": _model(given.reflection or _REFLECTION)},
        "optimizer": {"rollout_budget": given.auto or "light", **objectives},
    }


def _model(written: str) -> dict[str, Json]:
    provider, _, model = written.partition("/")
    if ":" in written:
        return {"python": written}
    if provider == "offline" and not model:
        return {"provider": provider}
    if provider not in ("openai", "anthropic") or not model:
        raise click.UsageError(
            "--reflection: expected `openai/MODEL`, `anthropic/MODEL`, `offline` or "
            f"`file.py:NAME`, found {written!r}"
        )
    return {"provider": provider, "model": model, "api_key": f"${{{provider.upper()}_API_KEY}}"}

"""``promptgraft import``: a project out of the configuration of another optimizer."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from promptgraft.cli.options import command, json_option
from promptgraft.cli.output import Screen, print_json, relative
from promptgraft.errors import ConfigError
from promptgraft.files import write_atomically
from promptgraft.project.files import FILE_NAME
from promptgraft.project.importing import Imported, import_optimizer
from promptgraft.serde import Json

METRICS_FILE = "metrics.json"
_TEXTS = "agent"
_FUNCTION = "call_agent"
_HEAD = "# Imported from {name}; `promptgraft check` says what is wrong, without a model call.\n"


@command(
    "import",
    "import o.json --train a --validation b",
)
@click.argument("config", metavar="CONFIG")
@click.option("--train", required=True, metavar="FILE", help="The cases that are learned from.")
@click.option(
    "--validation", required=True, metavar="FILE", help="The cases that candidates are compared on."
)
@click.option("--test", metavar="FILE", help="The cases that no part of the search sees.")
@click.option(
    "--agent",
    metavar="AGENT",
    help="`file.py:NAME`, an address, or a command; by default a function `call_agent` nearby.",
)
@click.option(
    "--prompt",
    "prompts",
    metavar="NAME=FILE",
    multiple=True,
    help="A text of the agent, once for each; by default every file `prompts/*.md` nearby.",
)
@click.option(
    "--callbacks", metavar="file.py:NAME", help="What reads and writes further texts of the agent."
)
@json_option
def import_command(
    config: str,
    *,
    train: str,
    validation: str,
    test: str | None,
    agent: str | None,
    prompts: tuple[str, ...],
    callbacks: str | None,
    as_json: bool,
) -> None:
    """Make a project out of another optimizer's configuration.

    CONFIG is its `optimizer.json`. Writes `promptgraft.yaml` and a metric file beside it; data,
    prompts and agent stay where they are. What is not kept, or not the same here, is said in a
    line each.
    """
    path = Path(config)
    folder = path.parent
    written = [folder / FILE_NAME, folder / METRICS_FILE]
    if there := [name for name in written if os.path.lexists(name)]:
        raise ConfigError(f"{there[0]} is there already; nothing was written; move it away first")
    imported = import_optimizer(path)
    sets = {"train": train, "validation": validation, **({"test": test} if test else {})}
    texts: dict[str, Json] = {}
    if prompts or not callbacks:
        texts["files"] = dict(_given(prompts, folder) if prompts else _nearby(folder))
    if callbacks:
        texts["callbacks"] = callbacks
    document: dict[str, Json] = {
        "version": 1,
        "prompts": {_TEXTS: texts},
        **_agent(agent or _function(folder), folder),
        "splits": {"files": {name: _inside(Path(file), folder) for name, file in sets.items()}},
        "metrics": METRICS_FILE,
        "models": imported.models,
        "optimizer": imported.optimizer,
        "workers": imported.workers,
    }
    write_atomically(written[1], f"{json.dumps(imported.evaluate, indent=2)}\n".encode())
    write_atomically(written[0], f"{_HEAD.format(name=path.name)}{_yaml(document)}".encode())
    _print(imported, written, as_json=as_json)


def _yaml(document: dict[str, Json]) -> str:
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _print(imported: Imported, written: list[Path], *, as_json: bool) -> None:
    if as_json:
        files: list[Json] = [str(path.absolute()) for path in written]
        print_json({"files": files, "notes": list(imported.notes)})
        return
    screen = Screen()
    screen.line(f"wrote {' and '.join(str(relative(path)) for path in written)}")
    for note in imported.notes:
        screen.line(f"note: {note}")
    screen.line("next:")
    folder = written[0].parent
    enter = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    screen.body("\n".join([*enter, "promptgraft check", "promptgraft optimize"]))


def _inside(file: Path, folder: Path) -> str:
    """Return how the project names a file that the command line names."""
    if not file.is_file():
        raise ConfigError(f"expected a file, found none at {file}")
    return os.path.relpath(file, folder)


def _given(prompts: tuple[str, ...], folder: Path) -> Iterator[tuple[str, Json]]:
    for given in prompts:
        name, sign, file = given.partition("=")
        if not sign:
            raise click.BadParameter(f"expected NAME=FILE, found {given!r}", param_hint="--prompt")
        yield name, _inside(Path(file), folder)


def _nearby(folder: Path) -> Iterator[tuple[str, Json]]:
    found = sorted(
        path for path in folder.rglob("prompts/*.md") if ".promptgraft" not in path.parts
    )
    if not found:
        raise ConfigError(
            f"there is no file prompts/*.md below {folder}; name the texts of the agent: "
            "`--prompt system=FILE`"
        )
    for path in found:
        yield re.sub(r"[^a-z0-9_-]+", "-", path.stem.lower()).strip("-_"), _inside(path, folder)


def _function(folder: Path) -> str:
    """Return the function of the agent where it usually stands."""
    for path in sorted(folder.rglob("*.py"), key=lambda one: (len(one.parts), one)):
        if _FUNCTION in path.read_text("utf-8", "replace") and _definition(path, _FUNCTION):
            return f"{path.relative_to(folder)}:{_FUNCTION}"
    raise ConfigError(
        f"there is no function `{_FUNCTION}` below {folder}; name the agent: "
        "`--agent file.py:NAME`, `--agent http://…`, or `--agent 'command {query}'`"
    )


def _definition(path: Path, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function of a module, without running it."""
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    made = [one for one in module.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return next((one for one in made if one.name == name), None)


def _agent(given: str, folder: Path) -> dict[str, Json]:
    """Return the agent, and how it gets the texts of a candidate."""
    if given.startswith(("http://", "https://")):
        # It reads its own files, unless its requests are made to carry them.
        return {"agent": {"http": {"url": given}}, "delivery": "live"}
    file, sign, name = given.rpartition(":")
    if not sign:
        delivery = "folder" if "{folder}" in given else "live"
        return {"agent": {"command": list(shlex.split(given))}, "delivery": delivery}
    found = _definition(folder / file, name) if (folder / file).is_file() else None
    takes_texts = found is not None and len(found.args.args + found.args.kwonlyargs) > 1
    return {"agent": {"python": given}, **({} if takes_texts else {"delivery": "live"})}

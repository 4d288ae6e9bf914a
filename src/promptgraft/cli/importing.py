"""``promptgraft import``: converting the files of another tool into a project."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypedDict, Unpack

import click

from promptgraft.cli.choosing import shipped
from promptgraft.cli.exits import complain
from promptgraft.cli.options import command, json_option
from promptgraft.cli.output import Screen, print_json, relative
from promptgraft.errors import ConfigError, DataFormatError, PromptgraftError
from promptgraft.ground.files import write_atomically
from promptgraft.ground.serde import Json, MismatchError
from promptgraft.ground.text import counted, listed
from promptgraft.ground.yaml_text import plain_scalar
from promptgraft.project.checking import Checked, check_project
from promptgraft.project.files import FILE_NAME, SCHEMA_FILE, SCHEMA_LINE
from promptgraft.project.foreign import Foreign, Notes
from promptgraft.project.imported import ImportedProject
from promptgraft.project.importing import TOP, import_optimizer
from promptgraft.project.inspect_data import FIELDS, import_inspect
from promptgraft.project.promptfoo import import_promptfoo

METRICS_FILE = "metrics.json"
_TEXTS = "agent"
_FUNCTION = "call_agent"
_HEAD = "# Imported from {name}; `promptgraft check` checks it without calling a model.\n"


@command(
    "import",
    "import promptfooconfig.yaml",
    "import samples.jsonl --field input=question",
    "import o.json --train a --validation b",
)
@click.argument("config", metavar="FILE")
@click.option("--train", metavar="FILE", help="The cases of the training set.")
@click.option("--validation", metavar="FILE", help="The cases that candidates are compared on.")
@click.option("--test", metavar="FILE", help="The held-out cases, which the search never sees.")
@click.option(
    "--agent",
    metavar="AGENT",
    help="The agent: `file.py:NAME`, a URL, or a command; by default a function `call_agent` in "
    "or below the folder of FILE.",
)
@click.option(
    "--prompt",
    "prompts",
    metavar="NAME=FILE",
    multiple=True,
    help="A text of the agent; may be repeated. By default every `prompts/*.md` in or below the "
    "folder of FILE.",
)
@click.option(
    "--callbacks",
    metavar="file.py:NAME",
    help="Functions that read and write further texts of the agent.",
)
@click.option(
    "--field",
    "fields",
    metavar="NAME=COLUMN",
    multiple=True,
    help="The column of an inspect_ai field, if it has another name; may be repeated.",
)
@click.option(
    "--root",
    metavar="FOLDER",
    help="The folder of all files that promptfoo's may name; by default the repository or folder "
    "of FILE.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Use the embedded offline model instead of the providers of promptfoo.",
)
@json_option
def import_command(config: str, *, as_json: bool, **given: Unpack[_ToolOptions]) -> None:
    """Convert the files of another tool into a project.

    FILE is a configuration of promptfoo, a data set of inspect_ai (JSON, JSONL or CSV), or an
    `optimizer.json` of trpc-agent, which needs --train and --validation. Writes
    `promptgraft.yaml` and the files that it names beside FILE, which is not changed. Prints one
    line for each thing that is lost or works differently, and what `check` says of the project.
    No code that FILE names is run.
    """
    path = Path(config)
    tool = _tool(path)
    for name, value in given.items():
        if value and name not in _OPTIONS[tool]:
            option = name.removesuffix("s") if name in ("prompts", "fields") else name
            raise click.UsageError(f"--{option} is not for {_TOOLS[tool]}; leave it out")
    if tool == "promptfoo":
        imported = _promptfoo(path, given)
    elif tool == "inspect_ai":
        imported = import_inspect(Foreign.of(path), dict(_fields(given["fields"])))
    else:
        imported = _optimizer(path, given)
    schema = shipped("project/project.schema.json").read_text("utf-8")
    document = f"{SCHEMA_LINE}{_HEAD.format(name=path.name)}{_yaml(imported.document)}"
    files = {FILE_NAME: document, **imported.files, SCHEMA_FILE: schema}
    written = [path.parent / name for name in files]
    files_in_place_of_folders = [one.parent for one in written if not one.parent.is_dir()]
    # `lexists`, because writing through a dangling link would create its target.
    if there := [one for one in (*files_in_place_of_folders, *written) if os.path.lexists(one)]:
        raise ConfigError(f"{there[0]} already exists; nothing was written; move it away first")
    # The project file is written last, so that an interrupted import leaves no project.
    for file, text in reversed([*zip(written, files.values(), strict=True)]):
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, text.encode())
    # An agent of the user is code, which an import does not run.
    checked = None if tool == "optimizer" else _checked(path.parent / FILE_NAME)
    _print(imported, checked, written, as_json=as_json)


def _checked(path: Path) -> Checked:
    try:
        return check_project(path)
    except PromptgraftError as error:
        return Checked(faults=(str(error),))


def _promptfoo(path: Path, given: _ToolOptions) -> ImportedProject:
    root = given["root"]
    if root is not None and not Path(root).is_dir():
        raise ConfigError(f"--root: expected a folder, found none at {root}")
    notes = Notes()
    try:
        files = Foreign.of(path, root=None if root is None else Path(root), notes=notes)
        return import_promptfoo(files, offline=given["offline"])
    except DataFormatError:
        # What was found until then may explain the faults.
        for note in notes.lines:
            complain(f"note: {note}")
        raise


class _ToolOptions(TypedDict):
    """The options that belong to one tool."""

    train: str | None
    validation: str | None
    test: str | None
    agent: str | None
    prompts: tuple[str, ...]
    callbacks: str | None
    fields: tuple[str, ...]
    root: str | None
    offline: bool


_TOOLS = {
    "promptfoo": "a configuration of promptfoo",
    "inspect_ai": "a data set of inspect_ai",
    "optimizer": "an `optimizer.json`",
}
_OPTIONS = {
    "promptfoo": ("offline", "root"),
    "inspect_ai": ("fields",),
    "optimizer": ("train", "validation", "test", "agent", "prompts", "callbacks"),
}


def _tool(path: Path) -> str:
    """Return the tool that a file comes from."""
    if path.suffix.lower() in (".csv", ".tsv", ".jsonl", ".ndjson"):
        return "inspect_ai"
    value = Foreign.of(path).source.document.value
    if isinstance(value, list):
        return "inspect_ai"
    keys = value.keys() if isinstance(value, dict) else set[str]()
    if keys & _PROMPTFOO:
        return "promptfoo"
    if keys & set(TOP):
        return "optimizer"
    what = f"an object with {listed(islice(keys, 5))}" if keys else "none of them"
    raise ConfigError(
        f"{path}: expected a configuration of promptfoo (with `prompts` and `tests`), a list of "
        "samples of inspect_ai, or an `optimizer.json` of trpc-agent (with `evaluate` and "
        f"`optimize`), found {what}; for cases of your own, name the file as `dataset` in "
        f"{FILE_NAME}: `promptgraft init` makes one"
    )


_PROMPTFOO = {"prompts", "providers", "targets", "tests", "scenarios", "redteam"}


def _fields(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for one in given:
        name, sign, column = one.partition("=")
        if not sign or name not in FIELDS:
            what = f"expected NAME=COLUMN with one of {', '.join(FIELDS)}, found {one!r}"
            raise click.BadParameter(what, param_hint="--field")
        yield name, column


def _optimizer(path: Path, given: _ToolOptions) -> ImportedProject:
    """Convert an `optimizer.json` into a project, with the agent of the command line."""
    folder = path.parent
    sets = {name: given[name] for name in ("train", "validation", "test")}
    for name in ("train", "validation"):
        if not sets[name]:
            raise click.UsageError(f"--{name} is missing")
    imported = import_optimizer(path)
    prompts, callbacks = given["prompts"], given["callbacks"]
    texts: dict[str, Json] = {}
    if prompts or not callbacks:
        texts["files"] = dict(_named_texts(prompts, folder) if prompts else _texts_below(folder))
    if callbacks:
        texts["callbacks"] = callbacks
    document: dict[str, Json] = {
        "version": 1,
        "prompts": {_TEXTS: texts},
        **_agent(given["agent"] or _find_function(folder), folder),
        "splits": {
            "files": {name: _inside(Path(file), folder) for name, file in sets.items() if file}
        },
        "metrics": METRICS_FILE,
        "models": imported.models,
        "optimizer": imported.optimizer,
        "workers": imported.workers,
    }
    metrics = f"{json.dumps(imported.evaluate, indent=2)}\n"
    return ImportedProject(document=document, files={METRICS_FILE: metrics}, notes=imported.notes)


def _yaml(document: Mapping[str, Json]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes texts that a strict YAML reader would refuse or read as another type."""

        # Equal objects would be written as aliases, which our reader refuses.
        def ignore_aliases(self, _: object) -> bool:
            return True

        def represent_str(self, data: str) -> yaml.ScalarNode:
            try:
                plain = plain_scalar(data) == data
            except MismatchError:
                plain = False
            return self.represent_scalar("tag:yaml.org,2002:str", data, None if plain else '"')

    Dumper.add_representer(str, Dumper.represent_str)
    return yaml.dump(dict(document), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def _print(
    imported: ImportedProject, checked: Checked | None, written: list[Path], *, as_json: bool
) -> None:
    faults, warnings = (checked.faults, checked.warnings) if checked else ((), ())
    if as_json:
        told = {
            "files": [str(path.absolute()) for path in written],
            "notes": imported.notes,
            "unwritten": imported.unwritten,
            "faults": faults,
            "warnings": warnings,
        }
        print_json({name: [*texts] for name, texts in told.items()})
        return
    screen = Screen()
    screen.line(f"wrote {', '.join(str(relative(path)) for path in written)}")
    for note in imported.notes:
        screen.line(f"note: {note}")
    if checked is not None:
        found = f"has {counted(len(faults), 'fault')}" if faults else "is valid"
        screen.line(f"checked: {FILE_NAME} {found}")
    for kind, lines in (("fault", faults), ("warning", warnings)):
        for line in lines:
            screen.line(f"{kind}: {line}")
    if imported.unwritten:
        screen.line(f"to write: {', '.join(imported.unwritten)}")
    screen.line("next:")
    folder = written[0].parent
    enter = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    if faults or checked is None:
        steps = ["promptgraft check"]
    else:
        steps = [f"promptgraft optimize {_first_prompt(imported.document)}"]
    screen.body("\n".join([*enter, *steps]))


def _first_prompt(document: Mapping[str, Json]) -> str:
    prompts = document["prompts"]
    return next(iter(prompts)) if isinstance(prompts, dict) else ""


def _inside(file: Path, folder: Path) -> str:
    """Return a file of the command line as a path relative to the project."""
    if not file.is_file():
        raise ConfigError(f"expected a file, found none at {file}")
    return os.path.relpath(file, folder)


def _named_texts(prompts: tuple[str, ...], folder: Path) -> Iterator[tuple[str, Json]]:
    for given in prompts:
        name, sign, file = given.partition("=")
        if not sign:
            raise click.BadParameter(f"expected NAME=FILE, found {given!r}", param_hint="--prompt")
        yield name, _inside(Path(file), folder)


def _texts_below(folder: Path) -> Iterator[tuple[str, Json]]:
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


def _find_function(folder: Path) -> str:
    """Find the function `call_agent` in or below a folder."""
    # The nearest file first; the text is searched before it is parsed, which takes longer.
    for path in sorted(folder.rglob("*.py"), key=lambda one: (len(one.parts), one)):
        if _FUNCTION in path.read_text("utf-8", "replace") and _definition(path, _FUNCTION):
            return f"{path.relative_to(folder)}:{_FUNCTION}"
    raise ConfigError(
        f"there is no function `{_FUNCTION}` below {folder}; name the agent: "
        "`--agent file.py:NAME`, `--agent http://…`, or `--agent 'command {query}'`"
    )


def _definition(path: Path, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the definition of a function in a module, without running the module."""
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    made = [one for one in module.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return next((one for one in made if one.name == name), None)


def _agent(given: str, folder: Path) -> dict[str, Json]:
    """Return the agent of a project file, and how it receives the texts of a candidate."""
    if given.startswith(("http://", "https://")):
        # A service reads its own files, so candidates have to be written into them.
        return {"agent": {"http": {"url": given}}, "delivery": "live"}
    file, sign, name = given.rpartition(":")
    if not sign:
        delivery = "folder" if "{folder}" in given else "live"
        return {"agent": {"command": list(shlex.split(given))}, "delivery": delivery}
    # Parsed and not imported: an import must not run code of the project.
    found = _definition(folder / file, name) if (folder / file).is_file() else None
    # After the query comes the call, which holds the texts.
    takes_texts = found is not None and len(found.args.args + found.args.kwonlyargs) > 1
    return {"agent": {"python": given}, **({} if takes_texts else {"delivery": "live"})}

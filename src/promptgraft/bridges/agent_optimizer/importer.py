"""``promptgraft import`` of an ``optimizer.json``: a project with the agent of the command line."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from promptgraft.bridges.agent_optimizer.configuration import import_optimizer
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json
from promptgraft.project.imported import ImportedProject, Importer, ImportOptions, Notes

METRICS_FILE = "metrics.json"
_TEXTS = "agent"
_FUNCTION = "call_agent"
_KEYS = {"evaluate", "optimize"}


class OptimizerImporter(Importer):
    """Converts the ``optimizer.json`` of trpc-agent."""

    source = "an `optimizer.json`"
    takes = ("train", "validation", "test", "agent", "prompts", "callbacks")
    names_code = True

    @classmethod
    def recognizes(cls, path: Path, value: Json) -> float:
        if not isinstance(value, dict):
            return 0
        # By its name, so that the faults say what is missing.
        return 1 if _KEYS & value.keys() else 0.1 * (path.name == "optimizer.json")

    @classmethod
    def convert(cls, path: Path, options: ImportOptions, notes: Notes) -> ImportedProject:
        return _project(path, options)


def _project(path: Path, options: ImportOptions) -> ImportedProject:
    folder = path.parent
    imported = import_optimizer(path)
    sets = {name: options[name] for name in ("train", "validation", "test")}
    for name in ("train", "validation"):
        if not sets[name]:
            raise ConfigError(f"--{name} is missing: it names the cases of that set")
    prompts, callbacks = options["prompts"], options["callbacks"]
    texts: dict[str, Json] = {}
    if prompts or not callbacks:
        texts["files"] = dict(_named_texts(prompts, folder) if prompts else _texts_below(folder))
    if callbacks:
        texts["callbacks"] = callbacks
    document: dict[str, Json] = {
        "version": 1,
        "prompts": {_TEXTS: texts},
        **_agent(options["agent"] or _find_function(folder), folder),
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


def _inside(file: Path, folder: Path) -> str:
    """Return a file of the command line as a path relative to the project."""
    if not file.is_file():
        raise ConfigError(f"expected a file, found none at {file}")
    return os.path.relpath(file, folder)


def _named_texts(prompts: tuple[str, ...], folder: Path) -> Iterator[tuple[str, Json]]:
    for text_option in prompts:
        name, sign, file = text_option.partition("=")
        if not sign:
            raise ConfigError(f"--prompt: expected NAME=FILE, found {text_option!r}")
        yield name, _inside(Path(file), folder)


def _texts_below(folder: Path) -> Iterator[tuple[str, Json]]:
    paths = sorted(
        path for path in folder.rglob("prompts/*.md") if ".promptgraft" not in path.parts
    )
    if not paths:
        raise ConfigError(
            f"there is no file prompts/*.md below {folder}; name the texts of the agent: "
            "`--prompt system=FILE`"
        )
    for path in paths:
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
    functions = [
        statement
        for statement in module.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return next((function for function in functions if function.name == name), None)


def _agent(spec: str, folder: Path) -> dict[str, Json]:
    """Return the agent of a project file, and how it receives the texts of a candidate."""
    if spec.startswith(("http://", "https://")):
        # A service reads its own files, so candidates have to be written into them.
        return {"agent": {"http": {"url": spec}}, "delivery": "live"}
    file, sign, name = spec.rpartition(":")
    if not sign:
        delivery = "folder" if "{folder}" in spec else "live"
        return {"agent": {"command": list(shlex.split(spec))}, "delivery": delivery}
    # Parsed and not imported: an import must not run code of the project.
    definition = _definition(folder / file, name) if (folder / file).is_file() else None
    # After the query comes the call, which holds the texts.
    takes_texts = (
        definition is not None and len(definition.args.args + definition.args.kwonlyargs) > 1
    )
    return {"agent": {"python": spec}, **({} if takes_texts else {"delivery": "live"})}

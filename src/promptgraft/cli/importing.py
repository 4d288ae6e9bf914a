"""``promptgraft import``: converting the files of another tool into a project."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Unpack

import click

from promptgraft.cli.choosing import shipped
from promptgraft.cli.exits import complain
from promptgraft.cli.options import command, json_option
from promptgraft.cli.output import Screen, print_json, relative
from promptgraft.cli.replaying import unpack
from promptgraft.errors import ConfigError, DataFormatError, PromptgraftError
from promptgraft.ground.files import is_file
from promptgraft.ground.serde import Json, MismatchError
from promptgraft.ground.text import counted, shell_word
from promptgraft.ground.yaml_text import plain_scalar
from promptgraft.project.checking import Checked, check_project
from promptgraft.project.exporting import is_export
from promptgraft.project.files import FILE_NAME, SCHEMA_FILE, SCHEMA_LINE, write_new
from promptgraft.project.imported import (
    ImportedProject,
    Importer,
    ImportOptions,
    Notes,
    importer_of,
)

_MOST_NAMED = 10
"""Functions and files to write that are named; the others are counted."""
_HEAD = "# Imported from {name}; `promptgraft check` checks it without calling a model.\n"


@command(
    "import",
    "import promptfooconfig.yaml",
    "import samples.jsonl --field input=question",
    "import o.json --train a --validation b",
    "import run.zip",
)
@click.argument("config", metavar="FILE")
@click.option("--train", metavar="FILE", help="The cases of the training set.")
@click.option("--validation", metavar="FILE", help="The cases that candidates are compared on.")
@click.option("--test", metavar="FILE", help="The test cases, which the search never sees.")
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
def import_command(config: str, *, as_json: bool, **given: Unpack[ImportOptions]) -> None:
    """Convert files of another tool into a project, or unpack a run.

    FILE is a configuration of promptfoo, a data set of inspect_ai (JSON, JSONL or CSV), or an
    `optimizer.json` of trpc-agent, which needs --train and --validation. Writes
    `promptgraft.yaml` and the files that it names beside FILE, which is not changed. Prints one
    line for each thing that is lost or works differently, and what `check` says of the project.
    No code that FILE names is run.

    A run that `promptgraft export --run` has packed is unpacked into a folder beside FILE, where it
    can be replayed, resumed and shown.
    """
    path = Path(config)
    if is_export(path):
        _refuse_others(given, (), "an exported run")
        unpack(path, as_json=as_json)
        return
    if path.name == FILE_NAME:
        raise ConfigError(f"{path} is a project already; `promptgraft check` checks it")
    importer = importer_of(path)
    _refuse_others(given, importer.takes, importer.source)
    imported = _converted(importer, path, given)
    schema = shipped("project/project.schema.json").read_text("utf-8")
    document = f"{SCHEMA_LINE}{_HEAD.format(name=path.name)}{_yaml(imported.document)}"
    files = {FILE_NAME: document, **imported.files}
    if not _is_there(path.parent / SCHEMA_FILE, schema):
        files[SCHEMA_FILE] = schema
    written = [path.parent / name for name in files]
    files_in_place_of_folders = [path.parent for path in written if not path.parent.is_dir()]
    # `lexists`, because writing through a dangling link would create its target.
    if there := [path for path in (*files_in_place_of_folders, *written) if os.path.lexists(path)]:
        raise ConfigError(f"{there[0]} already exists; nothing was written; move it away first")
    # The project file is written last, so that an interrupted import leaves no project.
    write_new({path.parent / name: files[name].encode() for name in reversed(files)})
    # An agent of the user is code, which an import does not run.
    checked = None if importer.names_code else _checked(path.parent / FILE_NAME)
    _print(imported, checked, written, as_json=as_json)


def _is_there(path: Path, text: str) -> bool:
    return is_file(path) and path.read_bytes() == text.encode()


def _refuse_others(options: ImportOptions, takes: Collection[str], source: str) -> None:
    """Refuse options that an import of ``source`` would ignore."""
    for name, value in options.items():
        if value and name not in takes:
            option = name.removesuffix("s") if name in ("prompts", "fields") else name
            raise click.UsageError(f"--{option} is not for {source}; leave it out")


def _converted(importer: type[Importer], path: Path, options: ImportOptions) -> ImportedProject:
    notes = Notes()
    try:
        return importer.convert(path, options, notes)
    except DataFormatError:
        # The notes so far may explain the faults.
        for note in notes.lines:
            complain(f"note: {note}")
        raise


def _checked(path: Path) -> Checked:
    try:
        return check_project(path)
    except PromptgraftError as error:
        return Checked(faults=(str(error),))


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
        plain = {
            "files": [str(path.absolute()) for path in written],
            "notes": imported.notes,
            "unwritten": imported.unwritten,
            "faults": faults,
            "warnings": warnings,
        }
        print_json({name: [*texts] for name, texts in plain.items()})
        return
    screen = Screen()
    screen.line(f"wrote {', '.join(str(relative(path)) for path in written)}")
    for note in imported.notes:
        screen.line(f"note: {note}")
    if checked is not None:
        state = f"has {counted(len(faults), 'fault')}" if faults else "is valid"
        screen.line(f"checked: {FILE_NAME} {state}")
    for kind, lines in (("fault", faults), ("warning", warnings)):
        for line in lines:
            screen.line(f"{kind}: {line}")
    if imported.unwritten:
        more = len(imported.unwritten) - _MOST_NAMED
        names = ", ".join(imported.unwritten[:_MOST_NAMED])
        screen.line(f"to write: {names}" + (f" and {more:,} more" if more > 0 else ""))
    screen.line("next:")
    folder = written[0].parent
    enter = [] if folder == Path() else [f"cd {shell_word(str(folder))}"]
    if faults or checked is None:
        steps = ["promptgraft check"]
    else:
        # Without plans, the cases are too few for a search.
        command = "optimize" if checked.plans else "eval"
        steps = [f"promptgraft {command} {_first_prompt(imported.document)}"]
    screen.body("\n".join([*enter, *steps]))


def _first_prompt(document: Mapping[str, Json]) -> str:
    prompts = document["prompts"]
    return next(iter(prompts)) if isinstance(prompts, dict) else ""

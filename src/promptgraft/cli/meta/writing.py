"""``promptgraft meta write``: the meta-prompts as files to edit."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.meta.stored import stored_metas
from promptgraft.cli.named import chosen_store
from promptgraft.cli.options import examples, json_option, project_option, store_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.errors import ConfigError
from promptgraft.files import write_atomically
from promptgraft.project.meta_prompts import meta_text

FOLDER = "meta-prompts"


@click.command("write", epilog=examples(f"promptgraft meta write {FOLDER}"))
@click.argument("folder", metavar="[DIR]", default=FOLDER)
@project_option
@store_option
@json_option
def write_command(
    folder: str, *, project: str | None, store: str | None, as_json: bool
) -> ExitCode:
    """Write the meta-prompts as they are now into Markdown files.

    DIR is `meta-prompts` by default. A file that says something else already is not replaced.
    """
    opened, target = chosen_store(store, project), Path(folder)
    texts = {
        target / f"{meta.name}.md": meta_text(
            meta.template, meta.current.override if meta.current else None
        ).encode()
        for meta in stored_metas(opened)
    }
    taken = [str(path) for path, text in texts.items() if _says_something_else(path, text)]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)}: exists and differs; name another folder, or delete what you do "
            "not need"
        )
    target.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        write_atomically(path, text)
    if as_json:
        print_json({"folder": str(target), "files": [str(path) for path in texts]})
        return ExitCode.OK
    screen = Screen()
    for path in texts:
        screen.line(str(path))
    screen.line()
    screen.line(
        "Edit them, compare them with the shipped ones, take them into the store:", bold=True
    )
    named = shlex.quote(str(target))
    screen.body(f"promptgraft meta diff {named}\npromptgraft meta apply {named}")
    return ExitCode.OK


def _says_something_else(path: Path, text: bytes) -> bool:
    return path.exists() and path.read_bytes() != text

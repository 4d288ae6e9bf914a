"""``promptgraft init``: a project that runs at once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from promptgraft.cli.choosing import example_folder
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import examples, json_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.errors import ConfigError

_COMMON = (
    "promptgraft.yaml",
    "README.md",
    "data/reports.jsonl",
    "tests/test_prompt.py",
    ".gitignore",
)
TEMPLATES: Mapping[str, Sequence[str]] = {
    "classify": (*_COMMON, "prompts/triage.md"),
    "agent": (*_COMMON, "prompts/repairs.md", "prompts/tools.yaml", "agent.py", "data/fleet.json"),
}
"""The files of each template."""


@click.command(
    "init",
    epilog=examples(
        "promptgraft init demo",
        "promptgraft init --template agent my_agent",
    ),
)
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="classify",
    show_default=True,
    help="A prompt that sorts texts, or an agent with a tool.",
)
@json_option
def init_command(folder: str, *, template: str, as_json: bool) -> ExitCode:
    """Write a project that runs at once, without a key or a network.

    It goes into DIR, by default the current folder, which is made if it is not there. Files
    that are there already are never overwritten. The comments in its `promptgraft.yaml` and
    its `README.md` say what to change for your own prompt and a real model.
    """
    target = Path(folder)
    texts = _texts(template)
    _refuse_to_overwrite(target, texts)
    _write(target, texts)
    if as_json:
        print_json({"folder": str(target.resolve()), "template": template, "files": sorted(texts)})
    else:
        _print(folder, sorted(texts))
    return ExitCode.OK


def _texts(template: str) -> dict[str, bytes]:
    source = example_folder(f"projects/{template}")
    # Under its own name it would be obeyed where the template stands.
    return {
        name: (source / name.replace(".gitignore", "_gitignore")).read_bytes()
        for name in TEMPLATES[template]
    }


def _refuse_to_overwrite(target: Path, texts: Mapping[str, bytes]) -> None:
    if target.is_file():
        raise ConfigError(f"{target} is a file; name a folder")
    there = sorted(name for name in texts if os.path.lexists(target / name))
    if there:
        where = "the current folder" if target == Path() else str(target)
        raise ConfigError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already in {where}; "
            "nothing was written; name another folder"
        )


def _write(target: Path, texts: Mapping[str, bytes]) -> None:
    for name, text in texts.items():
        path = target / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}; name a folder that can be written to"
            ) from error


def _print(folder: str, names: Sequence[str]) -> None:
    screen = Screen()
    screen.line(f"wrote {len(names)} files to {folder}:")
    for name in names:
        screen.line(f"  {name}")
    screen.line()
    screen.line("next:")
    enter = [] if folder == "." else [f"cd {shlex.quote(folder)}"]
    for line in (*enter, "promptgraft optimize", "promptgraft apply"):
        screen.line(f"  {line}")

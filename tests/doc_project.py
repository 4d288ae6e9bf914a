"""The blocks of a page that are not Python: commands, settings and files of a project."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from promptgraft.cli.main import run
from promptgraft.ground.yaml_text import read_yaml
from promptgraft.project import load_project, open_project

PROJECT = "promptgraft.yaml"
TEMPLATE = re.compile(r"<!-- blocks run in: (classify|agent|graph|nothing) -->")
"""What a page says of the project that its blocks run in."""

_BUDGET = re.compile(r"(?m)^(  rollout_budget: )\d+$")
_ENOUGH = r"\g<1>500"


def prepare(text: str) -> bool:
    """Make the project of a page in the current folder; tell whether it has one."""
    found = TEMPLATE.search(text)
    if found is not None and found[1] != "nothing":
        carry_out(f"promptgraft init --template {found[1]} .")
    return found is not None


def carry_out(code: str) -> None:
    """Run the lines of a block of commands, each of which has to succeed."""
    for line in lines_of(code):
        program, *arguments = shlex.split(line, comments=True)
        if program == "cd":
            os.chdir(arguments[0])
            continue
        assert program == "promptgraft", f"`{line}`: mark the block `sh no-run`"
        assert run(arguments) == 0, line
        if arguments[0] == "init":
            _make_cheap()


def lines_of(code: str) -> Iterator[str]:
    """Yield the commands of a block; a backslash at the end of a line joins it to the next."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.strip() and not line.strip().startswith("#"):
            yield line.strip()


def _make_cheap() -> None:
    (project,) = Path().glob(f"**/{PROJECT}")
    text, count = _BUDGET.subn(_ENOUGH, project.read_text("utf-8"))
    assert count == 1
    project.write_text(text, "utf-8")


def check_settings(code: str, *, kept: bool, looked_up: bool) -> None:
    """Check settings that take the place of those of the project; ``kept`` leaves them there.

    Where there is no project file yet, they are the whole of it.
    """
    faults: list[str] = []
    before = [path.read_text("utf-8") for path in Path().glob(PROJECT)]
    documents = [
        read_yaml(text, lambda line, what: faults.append(f"{line}: {what}"))
        for text in (*before, code)
    ]
    assert faults == [], faults
    settings: dict[str, object] = {}
    for document in documents:
        assert document is not None
        assert isinstance(document.value, dict)
        settings |= document.value
    place = Path(PROJECT if kept else "checked.yaml")
    place.write_text(json.dumps(settings, indent=2), "utf-8")
    (load_project if looked_up else open_project)(place)
    if not kept:
        place.unlink()


def write(name: str, text: str) -> None:
    """Write a file of the project."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")

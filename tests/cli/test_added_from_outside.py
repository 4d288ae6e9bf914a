"""What a package outside of promptgraft adds: a command, a tracker, an importer, and more."""

from __future__ import annotations

import json
import tomllib
from importlib import metadata
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from cli.console import Console
from promptgraft.cli.main import app
from promptgraft.errors import DataFormatError
from promptgraft.project import load_project, project_schema

PACKAGE = '''
"""A package of somebody else."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import click

from promptgraft.cli.adding import LateCommand
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.project.adding import Tracker, Workers
from promptgraft.project.imported import ImportedProject, Importer
from promptgraft.search.events import RunEnded


CARD = """---
syntax: jinja
output:
  choices: [a, b, c, d, e, f]
---
Repeat: {{ text }}
"""


@click.command("shelve", help="Shelve a book.")
@click.argument("book")
def shelve(book):
    click.echo(f"shelved {book}")


@attrs.frozen(kw_only=True)
class Notebook(Tracker):
    """Writes the verdict of each run to a file.

    Attributes:
        path: The file.
    """

    path: str

    @contextlib.contextmanager
    def reported(self, bus, *, key, folder):
        stop = bus.subscribe(RunEnded, lambda event: Path(self.path).write_text(f"{key} ended"))
        yield
        stop()


class Cards(Importer):
    source = "a box of cards"

    @classmethod
    def recognizes(cls, path, value):
        return 1 if isinstance(value, dict) and "cards" in value else 0

    @classmethod
    def convert(cls, path, options, notes):
        lines = "".join(
            f'{{"id": "{at}", "input": {{"text": "{card}"}}, "expected": "{card}"}}\\\\n'
            for at, card in enumerate(["a", "b", "c", "d", "e", "f"])
        )
        return ImportedProject(
            document={
                "version": 1,
                "prompts": {"card": "card.md"},
                "dataset": {"path": "cards.jsonl"},
                "metrics": [{"name": "exact"}],
                "models": {"task": {"provider": "offline"}},
                "optimizer": {"rollout_budget": 20},
            },
            files={"card.md": CARD, "cards.jsonl": lines},
            notes=("one card is blank",),
        )


@attrs.frozen
class Desk(Workers):
    """Threads of a desk.

    Attributes:
        seats: How many.
    """

    seats: int

    def connected(self, *, code, at_once, say):
        return ThreadPoolExecutor(self.seats)


def open_box(url, folder):
    return LocalPromptOverridesStore(folder)


# What a package may get wrong.

LATE = LateCommand("card_box:shelve", "Shelve a book, later.")
LATER = LateCommand("card_box:CARD", "Shelve nothing.")


@attrs.frozen
class Loose(Tracker):
    """Reports nowhere."""

    def reported(self, bus, *, key, folder):
        return "nothing"


@attrs.frozen
class Stool(Workers):
    """Threads that somebody else would have to start."""

    @contextlib.contextmanager
    def connected(self, *, code, at_once, say):
        yield ThreadPoolExecutor(1)


class Torn(Importer):
    source = "a box of torn cards"

    @classmethod
    def recognizes(cls, path, value):
        return 1 if isinstance(value, dict) and "torn" in value else 0

    @classmethod
    def convert(cls, path, options, notes):
        raise ValueError("a card is torn")


def open_bag(url, folder):
    return {}
'''
POINTS = """
[promptgraft.commands]
shelve = card_box:shelve
broken = card_box:not_there
half = card_box_half:COMMAND
late = card_box:LATE
later = card_box:LATER
[promptgraft.trackers]
notebook = card_box:Notebook
half = card_box_half:Tracker
loose = card_box:Loose
[promptgraft.importers]
cards = card_box:Cards
torn = card_box:Torn
[promptgraft.executors]
desk = card_box:Desk
stool = card_box:Stool
[promptgraft.stores]
box = card_box:open_box
bag = card_box:open_bag
"""
HALF = "def unfinished(:\n"
PROJECT = """
version: 1
prompts: {card: card.md}
dataset: {path: cards.jsonl}
metrics: [{name: exact}]
models: {task: {provider: offline}}
optimizer: {rollout_budget: 20}
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package, as pip would leave it."""
    site = tmp_path / "site"
    info = site / "card_box-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "card_box.py").write_text(PACKAGE.replace("\\\\n", "\\n"), "utf-8")
    (site / "card_box_half.py").write_text(HALF)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: card-box\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """Return a folder with a file of the other tool."""
    folder = tmp_path / "box"
    folder.mkdir()
    (folder / "box.json").write_text(json.dumps({"cards": []}), "utf-8")
    return folder


def test_every_entry_point_of_ours_is_installed() -> None:
    """Say what to do if the installed package is older than its ``pyproject.toml``."""
    file = Path(__file__).parents[2] / "pyproject.toml"
    declared = tomllib.loads(file.read_text("utf-8"))["project"]["entry-points"]
    for group, members in declared.items():
        points = {point.name: point.value for point in metadata.entry_points(group=group)}
        stale = {name for name, value in members.items() if points.get(name) != value}
        assert not stale, f"{group}: {sorted(stale)}: run `uv pip install -e . --no-deps`"
        for name in members:
            [point] = metadata.entry_points(group=group, name=name)
            assert point.load() is not None


def test_a_command_is_listed_completed_and_run(console: Console) -> None:
    assert "shelve" in app.list_commands(click.Context(app))
    shown = console("--help").out
    assert "Shelve a book." in shown
    assert "(command `broken`: the entry point 'card_box:not_there' cannot be imported" in " ".join(
        shown.split()
    )
    assert console("shelve", "emma").out == "shelved emma\n"
    assert "did you mean `shelve`?" in console("shelv").err
    assert "cannot be imported" in console("broken").err


def test_an_importer_recognizes_its_files_and_its_project_is_checked(
    console: Console, box: Path
) -> None:
    ran = console("import", str(box / "box.json"))
    assert ran.code == 0, ran.err
    assert "note: one card is blank" in ran.out
    assert "is valid" in ran.out
    assert (
        "--offline is not for a box of cards"
        in console("import", str(box / "box.json"), "--offline").err
    )


def test_trackers_executors_and_stores_are_named_in_the_project_file(
    console: Console, box: Path
) -> None:
    console("import", str(box / "box.json"))
    told, file = box / "told.txt", box / "promptgraft.yaml"
    file.write_text(
        f"{PROJECT}trackers: {{notebook: {{path: '{told}'}}}}\nexecutor: {{desk: {{seats: 2}}}}\n"
        "store: {url: 'box://here'}\n",
        "utf-8",
    )
    ran = console("optimize", "--project", str(file))
    assert ran.code in (0, 1), ran.err
    assert told.read_text("utf-8").endswith("ended")
    schema = project_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    document = yaml.safe_load(file.read_text("utf-8"))
    jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("trackers: {notebok: {}}", "unknown tracker `notebok` (did you mean `notebook`?)"),
        ("trackers: {notebook: {}}", "trackers.notebook: expected the key `path` (The file)"),
        ("executor: {desks: {}}", "unknown executor `desks` (did you mean `desk`?)"),
        ("store: {url: 'bok://here'}", "unknown kind of store `bok` (did you mean `box`?)"),
    ],
)
def test_a_wrong_name_or_setting_is_refused_in_its_line(
    line: str, fault: str, console: Console, box: Path
) -> None:
    console("import", str(box / "box.json"))
    file = box / "promptgraft.yaml"
    file.write_text(f"{PROJECT}{line}\n", "utf-8")
    with pytest.raises(DataFormatError) as caught:
        load_project(file)
    assert fault in str(caught.value)


def test_a_package_that_cannot_be_imported_breaks_only_what_needs_it(console: Console) -> None:
    assert "half" in console("--help").out
    assert console("late", "Emma").out == "shelved Emma\n"
    assert console("check", "--schema").code == 0
    ended = console("half")
    assert ended.code == 2
    assert "'card_box_half:COMMAND' cannot be imported: SyntaxError" in ended.err
    ended = console("later")
    assert ended.code == 2
    assert "'card_box:CARD': expected a click.Command, found" in ended.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trackers: {loose: {}}", "card_box:Loose.reported: expected a context manager, returned"),
        ("executor: {stool: {}}", "card_box:Stool.connected: expected a concurrent.futures"),
        ("store: {url: 'bag://here'}", "'card_box:open_bag': expected to return a RevisionedStore"),
        ("trackers: {half: {}}", "'card_box_half:Tracker' cannot be imported: SyntaxError"),
    ],
)
def test_what_a_package_gets_wrong_is_said_of_it(
    line: str, message: str, console: Console, box: Path
) -> None:
    console("import", str(box / "box.json"))
    file = box / "promptgraft.yaml"
    file.write_text(f"{PROJECT}{line}\n", "utf-8")
    ended = console("optimize", "--project", str(file), "-q")
    assert ended.code == 2
    assert message in ended.err


def test_an_exception_of_a_package_is_not_ours(console: Console, box: Path) -> None:
    (box / "box.json").write_text(json.dumps({"torn": []}), "utf-8")
    ended = console("import", str(box / "box.json"))
    assert ended.code == 2
    assert "raised ValueError: a card is torn" in ended.err
    assert "card_box" in ended.err
    assert "bug in promptgraft" not in ended.err

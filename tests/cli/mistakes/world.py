"""A small project in which each mistake is made, and the run of a command on it."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.cli.main import run
from promptgraft.errors import PromptgraftError

PROMPT = """---
output: {choices: [billing, shipping]}
---
# Task

Name the team that answers this mail.

# Mail

$text
"""
PROJECT = """version: 1
prompts:
  mail: mail.md
dataset:
  path: cases.jsonl
metrics:
  - name: exact
models:
  task: offline
optimizer:
  rollout_budget: 200
"""
CODE = """
from promptgraft import MarkdownSection, PromptTemplate


def metric(case, answer):
    return 1.0


def agent(query):
    return "billing"


MAIL = PromptTemplate(
    ns="mails", key="mail", sections=[MarkdownSection(title="", key="task", template="$text")]
)
"""
CASES = "".join(
    f'{{"id": "m{at}", "input": {{"text": "{text} {at}"}}, "expected": "{team}"}}\n'
    for at in range(40)
    for text, team in [("late parcel", "shipping") if at % 2 else ("wrong bill", "billing")]
)
TABLE = "text,team\n" + "".join(f"late parcel {at},shipping\n" for at in range(40))
FILES = {
    "promptgraft.yaml": PROJECT,
    "mail.md": PROMPT,
    "cases.jsonl": CASES,
    "mails.csv": TABLE,
    "code.py": CODE.replace("code", "own"),
    "own.py": CODE,
}


@attrs.frozen(kw_only=True)
class Mistake:
    """One mistake of a new user, and what the message about it has to say.

    Attributes:
        name: the mistake, in a few words.
        command: the command line; empty if ``python`` is run.
        python: code that calls the library.
        edits: replacements in files of the project, by file: the text, and what is there instead.
        files: further files; None removes one.
        code: the exit code.
        place: where it is: a file with its line, an option, or the name of a setting.
        expected: what may stand there.
        found: what stands there.
        mend: what to do.
    """

    name: str
    command: str = ""
    python: str = ""
    edits: Mapping[str, tuple[str, str]] = attrs.field(factory=dict)
    files: Mapping[str, str | None] = attrs.field(factory=dict)
    code: int = 2
    place: str = ""
    expected: str = ""
    found: str = ""
    mend: str = ""

    @property
    def wanted(self) -> dict[str, str]:
        """What the message has to hold, by name; what does not apply is left out."""
        parts = {"place": self.place, "expected": self.expected, "found": self.found}
        return {name: text for name, text in {**parts, "mend": self.mend}.items() if text}


@attrs.frozen
class Told:
    """How a command ended, and the lines that it has said of the mistake."""

    code: int
    lines: tuple[str, ...]

    def grade(self, mistake: Mistake) -> int:
        """Return 3 for one line that says all, less one for each thing missing, and at least 0.

        0 as well for another exit code, a traceback, or no line at all.
        """
        if self.code != mistake.code or not self.lines or "Traceback" in "\n".join(self.lines):
            return 0
        best = max(self.lines, key=lambda line: len(told_by(line, mistake)))
        return max(0, 3 - (len(mistake.wanted) - len(told_by(best, mistake))))

    def missing(self, mistake: Mistake) -> list[str]:
        """Return the names of what no line says."""
        best = max(self.lines, key=lambda line: len(told_by(line, mistake)), default="")
        return [name for name in mistake.wanted if name not in told_by(best, mistake)]


def told_by(line: str, mistake: Mistake) -> list[str]:
    """Return the names of what a line says."""
    return [name for name, text in mistake.wanted.items() if text in line]


def made(mistake: Mistake, folder: Path) -> None:
    """Write the project with its mistake."""
    texts = {**FILES, **mistake.files}
    for name, (before, after) in mistake.edits.items():
        text = texts[name]
        assert text is not None
        assert before in text, (mistake.name, before)
        texts[name] = text.replace(before, after, 1)
    for name, text in texts.items():
        if text is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Make a folder the current one, and forget what was imported from it."""
    before, known = Path.cwd(), set(sys.modules)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def told_of(mistake: Mistake) -> Told:
    """Make a mistake in an empty folder, and return what is said of it."""
    with tempfile.TemporaryDirectory() as name, silent_server() as address:
        folder = Path(name)
        made(mistake, folder)
        for path in folder.glob("*.py"):
            path.write_text(path.read_text("utf-8").replace("SERVER", address), "utf-8")
        with inside(folder):
            return _of_python(mistake) if mistake.python else _of_command(mistake)


def _of_command(mistake: Mistake) -> Told:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(mistake.command.split())
    return Told(code, (*out.getvalue().splitlines(), *err.getvalue().splitlines()))


def _of_python(mistake: Mistake) -> Told:
    try:
        exec(compile(mistake.python, "user.py", "exec"), {"__name__": "user"})
    except PromptgraftError as error:
        return Told(2, (str(error),))
    except Exception:  # noqa: BLE001 - whatever else is raised is a traceback for the user
        return Told(70, tuple(traceback.format_exc().splitlines()))
    return Told(0, ())

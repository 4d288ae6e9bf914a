"""Texts in files and callbacks as a prompt of a project: what works, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft.agents.delivery import FolderCopy, InCall
from promptgraft.agents.live import LiveFiles
from promptgraft.cli.main import run
from promptgraft.errors import DataFormatError
from promptgraft.project import load_project
from promptgraft.project.agents import TextsSource
from promptgraft.project.checking import check_project

CODE = """
from pathlib import Path

class Stored:
    def __init__(self, name):
        self.path = Path(__file__).with_name(name)

    def read(self):
        return self.path.read_text()

    async def write(self, text):
        self.path.write_text(text)

SOURCE = Stored("stored.txt")
SEVERAL = {"router": SOURCE, "writer": SOURCE}
TWICE = {"system": SOURCE}
NUMBER = 5
TEXTS = {"system": "System."}
HALF = {"router": 5}
DOWN = Stored("none.txt")
NAMED = {"Router": SOURCE}

def call(query, call):
    found = " ".join(call.texts.values())
    return "four" if "letters" in found else query
"""
FILES = "{system: prompts/system.md, skill: {path: .claude/s/SKILL.md, frozen: front_matter}}"
FILE = f"""version: 1
prompts:
  desk:
    files: {FILES}
    callbacks: store.py:SOURCE
agent: {{python: store.py:call}}
dataset: {{path: cases.jsonl}}
metrics: [{{name: exact}}]
models: {{reflection: {{provider: offline}}}}
"""

Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write a project with changes of its file, and return the file."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for name, text in {
        "store.py": CODE,
        "stored.txt": "Stored.",
        "prompts/system.md": "System.\n",
        ".claude/s/SKILL.md": "---\nname: s\n---\nSkill.",
        "../outside.md": "Outside.",
        "cases.jsonl": "\n".join(
            json.dumps({"id": f"c{n}", "input": f"q{n}", "expected": "four"}) for n in range(20)
        ),
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, "utf-8")

    def write(*changes: tuple[str, str], more: str = "") -> Path:
        text = FILE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        Path("promptgraft.yaml").write_text(text + more, "utf-8")
        return Path("promptgraft.yaml")

    return write


def test_texts_of_files_and_callbacks_are_one_prompt(written: Written) -> None:
    found = load_project(written()).prompt()
    assert [section.text for section in found.prompt.render().sections] == [
        "System.",
        "Skill.",
        "Stored.",
    ]
    assert found.prompt.descriptor.key == "desk"
    assert [section.path for section in found.prompt.descriptor.sections] == [
        ("system",),
        ("skill",),
        ("source",),
    ]
    assert check_project(written()).faults == ()


def test_callbacks_may_be_several_by_name_and_files_be_left_out(written: Written) -> None:
    path = written((f"files: {FILES}", "placeholders: [Stored]"), ("SOURCE", "SEVERAL"))
    prompt = load_project(path).prompt().prompt
    assert [section.path for section in prompt.descriptor.sections] == [("router",), ("writer",)]


@pytest.mark.parametrize(
    ("delivery", "kind"),
    [
        ("argument", InCall),
        ("request", InCall),
        ("folder", FolderCopy),
        ("{folder: .}", FolderCopy),
        ("live", LiveFiles),
    ],
)
def test_texts_are_delivered_as_the_file_says(written: Written, delivery: str, kind: type) -> None:
    asking = load_project(written(more=f"delivery: {delivery}\n")).asking
    assert asking is not None
    assert isinstance(asking.delivery, kind)


def prompt(files: str = "", callbacks: str = "") -> tuple[tuple[str, str], ...]:
    given = [f"files: {files}"] if files else []
    given += [f"callbacks: {callbacks}"] if callbacks else []
    return ((f"files: {FILES}\n    callbacks: store.py:SOURCE", "\n    ".join(given) or "{}"),)


WRONG: list[tuple[tuple[tuple[str, str], ...], str]] = [
    (prompt(), ""),
    (prompt("[a.md]"), ""),
    (prompt("{}"), ""),
    (prompt("{system: 5}"), ""),
    (prompt("{System: prompts/system.md}"), ""),
    (prompt("{system: prompts/none.md}"), ""),
    (prompt("{system: prompts}"), ""),
    (prompt("{system: ../outside.md}"), ""),
    (prompt("{a: prompts/system.md, b: ./prompts/../prompts/system.md}"), ""),
    (prompt("{system: {path: prompts/system.md, frozen: front_matter}}"), ""),
    (prompt("{system: {path: prompts/system.md, frozen: title}}"), ""),
    (prompt("{system: {file: prompts/system.md}}"), ""),
    (prompt("", "store.py"), ""),
    (prompt("", "none.py:SOURCE"), ""),
    (prompt("", "store.py:SOURSE"), ""),
    (prompt("", "store.py:NUMBER"), ""),
    (prompt("", "store.py:HALF"), ""),
    (prompt("", "store.py:DOWN"), ""),
    (prompt("", "store.py:NAMED"), ""),
    (prompt("{system: prompts/system.md}", "store.py:TWICE"), ""),
    (prompt("{system: prompts/system.md}"), "delivery: folders\n"),
    ((), "delivery: {path: .}\n"),
    ((), "delivery: {folder: none}\n"),
    ((), "delivery: {folder: prompts}\n"),
    (prompt("", "store.py:SOURCE"), "delivery: folder\n"),
    (
        ((f"desk:\n    files: {FILES}\n    callbacks: store.py:SOURCE", "desk: store.py:TEXTS"),),
        "delivery: live\n",
    ),
    (
        (
            ("agent: {python: store.py:call}\n", ""),
            ("models: {", "models: {task: {provider: offline}, "),
        ),
        "delivery: live\n",
    ),
    ((), "apply: source\n"),
]
LINES = Path(__file__).with_name("source_mistakes.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_what_is_wrong_is_a_line(written: Written, tmp_path: Path, at: int) -> None:
    changes, more = WRONG[at]
    faults = check_project(written(*changes, more=more)).faults
    told = [fault.removeprefix("promptgraft.yaml:") for fault in faults]
    assert " | ".join(told).replace(str(tmp_path), "TMP") == LINES[at]


def test_a_project_outside_reads_its_texts_from_its_own_folder(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(("prompts/system.md", "prompts/none.md"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataFormatError) as raised:
        load_project("project/promptgraft.yaml")
    assert str(raised.value) == (
        "project/promptgraft.yaml:4: prompts.desk.files.system: project/prompts/none.md: cannot be "
        "read: No such file or directory"
    )


SUBAGENT = "---\nname: clerk\ndescription: Triggers on: shelf, note\ntools: Read, Grep\n---\n\n"
SHELVES = """\
version: 1
prompts: {clerk: {files: {clerk: CLERK}}}
agent: {python: agent.py:answer}
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {reflection: {provider: offline}}
optimizer: {rollout_budget: 120, seed: 1}
"""
CLERK = "def answer(query, call):\n    return call.texts['clerk']\n"


@pytest.mark.parametrize(
    ("clerk", "is_protected"),
    [
        ("agents/clerk.md", True),
        ("{path: agents/clerk.md, frozen: front_matter}", True),
        ("{path: agents/clerk.md, frozen: none}", False),
    ],
)
def test_front_matter_is_no_part_of_a_text_unless_the_project_says_so(
    tmp_path: Path,
    clerk: str,
    is_protected: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "clerk.md").write_text(f"{SUBAGENT}You name desks.\n")
    (tmp_path / "agent.py").write_text(CLERK)
    (tmp_path / "promptgraft.yaml").write_text(SHELVES.replace("CLERK", clerk))
    cases = [{"input": f"note {n}", "expected": "light"} for n in range(30)]
    (tmp_path / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))

    project = load_project(tmp_path / "promptgraft.yaml")
    [section] = project.prompt().prompt.render().sections
    assert ("tools: Read" in section.text) != is_protected
    assert run(["check", "--json"]) == 0
    protected = json.loads(capsys.readouterr().out)["protected"]
    assert len(protected) == is_protected
    for line in protected:
        assert line.startswith("promptgraft.yaml:2: prompts.clerk.files.clerk: the front matter")
        assert line.endswith("agents/clerk.md, never changes; `frozen: none` opens it")
    source = project.prompt().source
    assert isinstance(source, TextsSource)
    source.sources.write({"clerk": "New."}, by="a test")
    written = (tmp_path / "agents" / "clerk.md").read_text()
    assert written == (f"{SUBAGENT}New.\n" if is_protected else "New.\n")


def test_places_that_a_rewrite_may_lose_are_named_until_placeholders_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents").mkdir()
    text = "Ask {{ question | trim }} of {topic} at {case.price:.2f}{{#7.q#}}: "
    text += '{"a": {}}, { so }, {{}}.\n'
    (tmp_path / "agents" / "clerk.md").write_text(text)
    (tmp_path / "agent.py").write_text(CLERK)
    cases = [{"input": f"note {n}", "expected": "light"} for n in range(30)]
    (tmp_path / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    project = SHELVES.replace("CLERK", "agents/clerk.md")
    notes = []
    every = "['{{ question | trim }}', '{topic}', '{case.price:.2f}', '{{#7.q#}}']"
    for kept in ("[]", "['{topic}']", every):
        changed = project.replace("clerk.md}", f"clerk.md}}, placeholders: {kept}", 1)
        (tmp_path / "promptgraft.yaml").write_text(changed)
        assert run(["check", "--json"]) == 0
        notes.append(json.loads(capsys.readouterr().out)["notes"])
    mend = "which a rewrite may leave out; list in `placeholders` what has to stay"
    where = "promptgraft.yaml:2: prompts.clerk: text `clerk` has"
    rest = f"`{{case.price:.2f}}`, `{{{{#7.q#}}}}`, {mend}"
    assert notes == [
        [f"{where} `{{{{ question | trim }}}}`, `{{topic}}`, {rest}"],
        [f"{where} `{{{{ question | trim }}}}`, {rest}"],
        [],
    ]

"""Texts at places in files of JSON and YAML change, and nothing else in these files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.console import Console
from promptgraft.agents.call import Delivery
from promptgraft.agents.delivery import FolderCopy
from promptgraft.agents.live import LiveFiles
from promptgraft.agents.sources import FileSource, Sources, read_file, read_sources
from promptgraft.errors import ConfigError, DataFormatError

# As DSPy saves a program: keys with dots, escapes, and examples beside the instructions.
PROGRAM = """{
  "sort.predict": {
    "demos": [{"mail": "\\ud83d\\ude00 a\\/b", "desk": "billing"}],
    "signature": {"instructions": "Name the desk.", "fields": [{"prefix": "Mail:"}]}
  },
\t"answer": {"signature": {"instructions": "Answer it."}}, "n": 1.50
}
"""
CREW = """\
# The crew.
clerk:   # sorts
  role: Clerk
  goal: >-
    Name
    the desk.
  backstory: |
    You sort mail.

    Be brief.
  tools: [find, 'ask']
writer: {role: "Writer", goal: Answer it.}   # writes
"""
PLACES = {
    "sort": '$["sort.predict"].signature.instructions',
    "answer": "$.answer.signature.instructions",
}


def read(folder: Path, name: str, content: str, places: Mapping[str, str]) -> Sources:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content.encode())
    files = {text: FileSource(Path(name), at=at) for text, at in places.items()}
    return read_sources(files, folder=folder)


def test_texts_of_one_file_are_written_where_they_were_read(tmp_path: Path) -> None:
    sources = read(tmp_path, "program.json", PROGRAM, PLACES)
    assert sources.texts == {"sort": "Name the desk.", "answer": "Answer it."}
    new = {"sort": 'Say "sales".\nOr \\ 😀.', "answer": "Reply."}
    assert sources.write(new, by="the test") == ("program.json",)
    written = (tmp_path / "program.json").read_text("utf-8")
    as_json = {name: json.dumps(text, ensure_ascii=False) for name, text in new.items()}
    assert written == PROGRAM.replace('"Name the desk."', as_json["sort"]).replace(
        '"Answer it."', as_json["answer"]
    )
    assert read(tmp_path, "program.json", written, PLACES).texts == new


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_of_yaml_keeps_comments_and_layout_around_it(
    tmp_path: Path, line_break: str, mark: str
) -> None:
    places = {
        "goal": "clerk.goal",
        "story": "$.clerk.backstory",
        "writer": "writer.goal",
    }
    content = mark + CREW.replace("\n", line_break)
    sources = read(tmp_path, "agents.yaml", content, places)
    texts = {
        "goal": "Name the desk.",
        "story": "You sort mail.\n\nBe brief.",
        "writer": "Answer it.",
    }
    assert sources.texts == texts
    new = {"goal": "Say: sales.", "story": "Sort.\n\n# no comment", "writer": 'Reply, "now".'}
    sources.write(new, by="the test")
    written = (tmp_path / "agents.yaml").read_bytes().decode().replace(line_break, "\n")
    assert "\r" not in written
    expected = CREW.replace(">-\n    Name\n    the desk.", '"Say: sales."')
    expected = expected.replace("You sort mail.\n\n    Be brief.", "Sort.\n\n    # no comment")
    assert written == mark + expected.replace("goal: Answer it.", 'goal: "Reply, \\"now\\"."')
    again = read(tmp_path, "again.yaml", (tmp_path / "agents.yaml").read_bytes().decode(), places)
    assert again.texts == new


TEXT = st.text("ab #$\\{}%-=`~<>!&*:'\"|,[]?@\n\té\x85\u2028😀0", max_size=20)


@given(TEXT, TEXT, st.sampled_from(["program.json", "agents.yaml"]))
def test_any_text_reads_back_and_nothing_else_changes(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str, name: str
) -> None:
    is_json = name == "program.json"
    content = PROGRAM if is_json else CREW
    places = PLACES if is_json else {"sort": "clerk.backstory", "answer": "writer.goal"}
    folder = tmp_path_factory.mktemp("app")
    sources = read(folder, name, content, places)
    new = {"sort": one, "answer": other}
    written = sources.content("sort", new)
    assert written == sources.content("answer", new)
    load = json.loads if is_json else yaml.safe_load
    data = load(written)
    expected = load(content)
    if is_json:
        expected["sort.predict"]["signature"]["instructions"] = one
        expected["answer"]["signature"]["instructions"] = other
    else:
        expected["clerk"]["backstory"] = f"{one}\n"
        expected["writer"]["goal"] = other
    assert data == expected
    assert sources.content("sort", {}) == content


def test_a_rollout_and_the_live_file_hold_all_texts_of_a_candidate(tmp_path: Path) -> None:
    sources = read(tmp_path / "app", "program.json", PROGRAM, PLACES)
    new = {"sort": "Say it.", "answer": "Reply."}
    deliveries: list[Delivery] = [FolderCopy(sources, sources.folder), LiveFiles(sources)]
    for delivery in deliveries:
        with delivery.opened(tmp_path / delivery.kind), delivery.deliver(new) as folder:
            assert folder is not None
            held = json.loads((folder / "program.json").read_text())
        assert held["sort.predict"]["signature"]["instructions"] == "Say it."
        assert held["answer"]["signature"]["instructions"] == "Reply."
        assert (tmp_path / "app" / "program.json").read_text() == PROGRAM


@pytest.mark.parametrize(
    ("content", "at", "told"),
    [
        (PROGRAM, "answer.text", "expected a text at `answer.text`, found nothing; texts: `"),
        (PROGRAM, "answer.signature", "expected a text at `answer.signature`, found {'instruc"),
        (PROGRAM, "n", "expected a text at `n`, found 1.5"),
        ("- a\n b: c", "$[0]", "not YAML"),
        ("a: !secret x\nb: text", "b", "expected plain data, found the tag '!secret'"),
        ("a: &x one\nb: *x\nc: *x", "a", "cannot be written at `AT` and nothing else change"),
        ("a: &x one\nb: *x\nc: *x", "b", "cannot be written at `AT` and nothing else change"),
    ],
)
def test_a_place_without_a_text_of_its_own_is_refused(
    tmp_path: Path, content: str, at: str, told: str
) -> None:
    (tmp_path / "prompts.yaml").write_text(content, "utf-8")
    with pytest.raises((ConfigError, DataFormatError)) as caught:
        read_file(tmp_path / "prompts.yaml", "", name="prompts.yaml", at=at)
    assert str(caught.value).startswith("prompts.yaml:")
    assert told.replace("AT", at) in str(caught.value)


def test_a_place_in_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text("[agent]\nprompt = 'Sort it.'\n", "utf-8")
    with pytest.raises(DataFormatError, match=r"^app\.toml: `at` reads JSON and YAML, and this is"):
        read_file(tmp_path / "app.toml", "", name="app.toml", at="agent.prompt")


def test_a_place_is_one_and_is_named_once(tmp_path: Path) -> None:
    for at in ("$", "a[*]", "a[-1]", "a b"):
        with pytest.raises(ConfigError, match=r"^at: "):
            FileSource(Path("a.json"), at=at)
    with pytest.raises(ConfigError, match="expected `frozen` or `at`, found both"):
        FileSource(Path("a.json"), "none", at="a")
    with pytest.raises(DataFormatError, match="name each place in it once"):
        read(tmp_path, "a.json", '{"a": "x"}', {"one": "a", "two": "$.a"})
    with pytest.raises(DataFormatError, match="name each file once"):
        read(tmp_path, "a.json", '{"a": "x"}', {"one": "a", "two": ""})


def test_a_project_writes_its_winner_to_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    console = Console(capsys)
    Path("program.json").write_text('{"desk": {"instructions": "- billing: invoice"}, "n": 1.0}\n')
    Path("agent.py").write_text(
        "import json\n\n\ndef call(query, call):\n"
        "    program = json.loads((call.folder / 'program.json').read_text())\n"
        "    lines = program['desk']['instructions'].splitlines()\n"
        "    pairs = [line[2:].split(': ') for line in lines if line.startswith('- ')]\n"
        "    desks = [d for d, words in pairs if set(words.split()) & set(query.split())]\n"
        "    return desks[0] if desks else 'support'\n"
    )
    Path("writer.py").write_text(
        "from promptgraft import ScriptedAdapter\n\n"
        "TEXT = '```instruction\\n- billing: invoice refund\\n```'\n"
        "WRITER = ScriptedAdapter(lambda asked: TEXT, identity='writer')\n"
    )
    rows = [("my invoice", "billing"), ("a refund", "billing"), ("the login", "support")] * 30
    lines = [json.dumps({"input": f"{q} {n}", "expected": d}) for n, (q, d) in enumerate(rows)]
    Path("cases.jsonl").write_text("\n".join(lines))
    Path("promptgraft.yaml").write_text(
        "version: 1\nprompts:\n  desk:\n    files:\n"
        "      rules: {path: program.json, at: $.desk.instructions}\n"
        "agent: {python: agent.py:call}\ndelivery: folder\ndataset: cases.jsonl\nmetrics: [exact]\n"
        "models: {reflection: {python: writer.py:WRITER}}\noptimizer: {rollout_budget: 100}\n"
    )
    assert "a rewrite may break" not in console("check").out
    assert console("optimize", "-q").code == 0
    assert console("apply", "--to-source").code == 0
    data = json.loads(Path("program.json").read_text())
    assert data == {"desk": {"instructions": "- billing: invoice refund"}, "n": 1.0}
    assert Path("program.json").read_text().endswith('"}, "n": 1.0}\n')
    whole = Path("promptgraft.yaml").read_text().replace(", at: $.desk.instructions", "")
    Path("promptgraft.yaml").write_text(whole)
    told = (
        "text `rules` is all of program.json, which a rewrite may break; `{path: program.json, at: "
    )
    assert told in console("check").out

"""`render` and `export` print whole prompts; `diff` and `show` know the project's source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.console import Console

PROJECT = """
version: 1
prompts: {desk: desk.md}
dataset: {path: cases.csv}
splits: {ratio: {train: 0.4, validation: 0.3, test: 0.3}, seed: 0}
metrics: [{name: exact}]
models: {task: {provider: offline}}
optimizer: {rollout_budget: 30, minibatch_size: 2}
"""
SOURCE = """---
ns: demo
key: desk
output: {choices: [sales, support]}
---

# Task

Name the desk. It costs $$5.

# Desks {#desks}

- sales: buy
- support: broken

# Message {#message}

$body
"""
CASES = "id,input,expected\n" + "".join(
    f"c{n},{'I want to buy' if n % 2 else 'it is broken'} number {n},"
    f"{'sales' if n % 2 else 'support'}\n"
    for n in range(12)
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console) -> Path:
    """A project with one revision under its tag."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"promptgraft.yaml": PROJECT, "desk.md": SOURCE, "cases.csv": CASES}.items():
        (tmp_path / name).write_text(text, "utf-8")
    _override(tmp_path, "- sales: buy, order\n- support: broken\n- both: $body")
    return tmp_path


def _override(folder: Path, body: str) -> None:
    from promptgraft.overrides import LocalPromptOverridesStore
    from promptgraft.project import load_project

    store = LocalPromptOverridesStore(folder)
    prompt = load_project(folder / "promptgraft.yaml").prompt("desk").prompt
    store.set_section_override(prompt, path=("desks",), body=body, tag="latest")


def test_a_template_has_the_texts_in_force_and_the_placeholders(
    desk: Path, console: Console
) -> None:
    in_force, source = console("export"), console("export", "desk", "--source")
    assert (in_force.code, in_force.err) == (0, "")
    assert "- sales: buy, order\n" in in_force.out
    assert in_force.out.endswith("## Message\n\n$body\n")
    assert "It costs $5." in source.out
    assert "order" not in source.out


def test_a_prompt_is_rendered_for_a_case(desk: Path, console: Console) -> None:
    ended = console("render", "--case", "c3")
    assert (ended.code, ended.err) == (0, "")
    assert "It costs $5." in ended.out
    assert ended.out.endswith("## Message\n\nI want to buy number 3\n")
    assert console("render").out.splitlines()[-1].split()[-2] == "number"
    wrong = console("render", "--case", "c33")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--case: the project has no case `c33` (did you mean" in wrong.err
    assert re.search(r"; cases: (`c\d+`, ){4}`c\d+` and \d+ more$", wrong.err.strip())


def test_messages_are_those_that_a_model_is_sent(desk: Path, console: Console) -> None:
    system, user = json.loads(console("export", "--source", "--messages").out)
    assert system["role"] == "system"
    assert system["content"].startswith("## Task\n\nName the desk.")
    assert user == {"role": "user", "content": "## Message\n\n$body"}
    both = console("export", "--json", "--messages")
    assert (both.code, both.out) == (2, "")


def test_requests_are_printed_as_providers_take_them(desk: Path, console: Console) -> None:
    openai = json.loads(console("export", "--source", "--as", "openai").out)
    assert [message["role"] for message in openai["messages"]] == ["system", "user"]
    schema = openai["response_format"]["json_schema"]["schema"]
    assert "sales" in json.dumps(schema)
    anthropic = json.loads(console("render", "--as", "anthropic", "--case", "c1").out)
    assert anthropic["system"][0]["text"].startswith("## Task")
    assert anthropic["messages"][0]["content"].endswith("I want to buy number 1")
    assert anthropic["output_config"]["format"]["schema"] == schema
    responses = json.loads(console("export", "--source", "--as", "responses").out)
    assert responses["instructions"] == openai["messages"][0]["content"]
    assert responses["text"]["format"]["schema"] == schema
    assert {*openai, *responses, *anthropic}.isdisjoint({"model", "max_tokens"})
    both = console("export", "--as", "openai", "--json")
    assert (both.code, both.out) == (2, "")


def test_the_document_names_what_is_applied(desk: Path, console: Console) -> None:
    found = json.loads(console("render", "--json", "--case", "c1").out)
    assert found["case"] == "c1"
    assert found["tried"].startswith("tag `latest`, revision ")
    assert found["applied"] == ["section desks"]
    assert found["output_schema"]["enum"] == ["sales", "support"]
    assert found["messages"][-1]["content"] in found["text"]


def test_a_candidate_of_a_run_is_printed(desk: Path, console: Console) -> None:
    assert console("optimize", "--quiet").code in (0, 1)
    baseline = console("export", "--run", "latest", "--candidate", "0")
    assert baseline.out == console("export").out
    both = console("export", "--run", "latest", "--source")
    assert (both.code, both.out) == (2, "")


def test_stale_overrides_are_warned_of_and_not_printed(desk: Path, console: Console) -> None:
    (desk / "desk.md").write_text(SOURCE.replace("- sales: buy", "- sales: buys"), "utf-8")
    ended = console("export")
    assert "- sales: buys\n" in ended.out
    assert "warning: tag `latest` holds overrides that do not apply" in ended.err
    shown = console("show", "desk")
    assert "section desks: not applied, stale" in shown.out
    # A store is read also where the project is broken.
    (desk / "desk.md").write_text("---\n", "utf-8")
    assert console("show", "demo/desk").code == 0


def test_a_revision_is_compared_with_the_source_of_the_project(
    desk: Path, console: Console
) -> None:
    first = console("diff", "desk")
    assert "from  the source\n" in first.out
    assert "\n-- sales: buy\n" in first.out
    _override(desk, "- sales: sell\n- support: broken")
    assert "\n-- sales: buy, order\n" in console("diff", "demo/desk").out
    second = console("diff", "demo/desk", "--source")
    assert "\n-- sales: buy\n" in second.out
    assert "\n+- sales: sell\n" in second.out
    assert json.loads(console("diff", "desk", "--source", "--json").out)["source"] is True
    (desk / "promptgraft.yaml").unlink()
    nowhere = console("diff", "demo/desk", "--source")
    assert nowhere.code == 2
    assert "no project here has the prompt `demo/desk`" in nowhere.err


def test_revisions_are_named_by_their_numbers(desk: Path, console: Console) -> None:
    _override(desk, "- sales: sell\n- support: broken")
    back = json.loads(console("rollback", "desk", "--to", "1", "--json").out)
    assert (back["from"]["number"], back["to"]["number"]) == (2, 1)
    differing = json.loads(console("diff", "desk", "--from", "1", "--to", "2", "--json").out)
    assert (differing["from"]["number"], differing["to"]["number"]) == (1, 2)
    tagged = json.loads(console("tag", "desk", "stable", "--revision", "2", "--json").out)
    assert tagged["of"]["revision"]["number"] == 2
    missing = console("rollback", "desk", "--to", "7")
    assert missing.code == 2
    assert "has no revision `7`; it has 1 (`" in missing.err


def test_blocks_loop_over_messages_that_a_placeholder_shows_as_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    monkeypatch.chdir(tmp_path)
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
    rows = [{"id": f"c{n}", "talk": said, "expected": "sales"} for n in range(12)]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    loop = "{% for one in talk %}<{{ one.role }}>{% endfor %}"
    head = "---\nsyntax: jinja\noutput: {choices: [sales, support]}\n---\n"
    (tmp_path / "desk.md").write_text(f"{head}{{{{ talk }}}}\n\n{loop} {{{{ talk|length }}}}\n")
    (tmp_path / "promptgraft.yaml").write_text(PROJECT.replace("cases.csv", "cases.jsonl"))
    shown = console("render", "--case", "c1")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == "user: Hello\n\nassistant: Yes?\n\n<user><assistant> 2\n"

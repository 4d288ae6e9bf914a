"""``show``, ``history`` and ``diff`` on overrides of every kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cli.console import Console
from cli.kinds import NAME, PARTS, TEMPLATE, edit_source, make_project, prompt_of
from cli.test_streams import CONTROLS, on_terminal
from programs import Programs
from promptgraft.overrides import LocalPromptOverridesStore, TaskStepOverride

HOSTILE = "said\x1b[31m\x1b]0;title\x07\rover\x9b2J\u202eevil\nnext: line"
SPELLED = "said\\x1b[31m\\x1b]0;title\\x07\\rover\\x9b2J\\u202eevil"


def test_show_prints_what_overrides_of_every_kind_say(console: Console, project: Path) -> None:
    make_project(project)

    ended = console("show", NAME)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.partition("latest.json\n")[2] == (
        "\n"
        "section role\n"
        "  Review $language code well.\n"
        "\n"
        "summary history\n"
        "  Ask for older reviews.\n"
        "\n"
        "tool search\n"
        "  description: Search every file.\n"
        "  parameter query: A word of the code.\n"
        "\n"
        "tool example search/0\n"
        '  input: {"query": "FIXME", "limit": 5}\n'
        "\n"
        "task example guide/security/sqli\n"
        "  objective: Find injected SQL.\n"
        '  step 0 input: {"query": "raw(", "limit": 5}\n'
        "\n"
        "added task example guide/security/leak\n"
        "  objective: Find leaked keys.\n"
        "  step 0 tool: search\n"
        "  step 0 description: Look for keys.\n"
        '  step 0 input: {"query": "api_key", "limit": 5}\n'
        '  step 0 output: {"hits": []}\n'
        '  outcome: {"severity": "high", "note": "A key is in the code."}\n'
        "\n"
        "removed task example guide/security/xss\n"
        "  The example of the source is not shown.\n"
        "\n"
        "output field Review.severity\n"
        "  description: How urgent it is.\n"
        '  aliases: ["urgency", "level"]\n'
        "  option low: Can wait.\n"
        "\n"
        "visibility guide/style\n"
        "  no longer shown\n"
    )
    assert "9 overrides" in console("show").out
    assert json.loads(console("show", "--json").out)["tags"][0]["overrides"] == 9


def test_documents_have_one_shape_for_every_kind(console: Console, project: Path) -> None:
    store = make_project(project)

    shown = _document(console, "show", NAME)["parts"]
    compared = _document(console, "diff", NAME, "--template", TEMPLATE)["parts"]
    revisions = _document(console, "history", NAME)["revisions"]

    kinds = {part: kind.kind for kind, part in PARTS.items()}
    assert {part["part"]: part["kind"] for part in shown} == kinds
    assert {part["part"]: part["kind"] for part in compared} == kinds
    assert all((part["status"], part["reason"]) == (None, None) for part in shown)
    assert all((part["status"], part["reason"]) == ("applied", None) for part in compared)
    assert [revision["overrides"] for revision in revisions] == [*range(1, 10)]
    changed = [part for revision in revisions for part in revision["parts"]]
    assert [part["part"] for part in changed] == list(reversed([*PARTS.values()]))
    assert {frozenset(part) for part in shown} == {
        frozenset(["kind", "part", "status", "reason", "expected_hash", "found_hash", "content"])
    }
    assert {frozenset(part) for part in (*compared, *changed)} == {
        frozenset(["kind", "part", "status", "reason", "before", "after", "diff"])
    }
    # Content is what the store's file has, without the hash.
    (file,) = store.root_path.rglob("review/latest.json")
    stored = json.loads(file.read_bytes())
    lists = [value for value in stored.values() if isinstance(value, list)]
    assert [{**part["content"], "expected_hash": part["expected_hash"]} for part in shown] == [
        entry for entries in lists for entry in entries
    ]


def test_history_tells_additions_changes_and_what_was_taken_away(
    console: Console, project: Path
) -> None:
    store = make_project(project)
    prompt = prompt_of(project)
    store.set_tool_override(prompt, name="search", description="Search it all.")
    for part in ("removed task example guide/security/xss", "tool search"):
        store.remove_override(ns="tests/agents", prompt_key="review", part=part)

    lines = console("history", NAME).out.splitlines()

    assert [line.strip() for line in lines if re.match(r"    (\d|[-+~] )", line)][:6] == [
        "7 overrides",
        "- tool search",
        "8 overrides",
        "- removed task example guide/security/xss",
        "9 overrides",
        "~ tool search",
    ]


def test_history_says_nothing_of_changes_from_a_revision_that_is_lost(
    console: Console, project: Path
) -> None:
    store = make_project(project)
    for archived in store.root_path.rglob(".revisions/latest/*.json"):
        archived.unlink()

    (revision,) = _document(console, "history", NAME)["revisions"]

    assert revision["parts"] is None
    assert console("history", NAME).out.endswith("    9 overrides\n")


def test_diff_from_the_source_shows_only_what_is_replaced(console: Console, project: Path) -> None:
    make_project(project)

    out = console("diff", NAME, "--template", TEMPLATE).out

    assert _changes(out) == {
        "section role": ["-Review $language code.", "+Review $language code well."],
        "summary history": ["-Older reviews are kept.", "+Ask for older reviews."],
        "tool search": [
            "-description: Search the code.",
            "-parameter query: What to look for.",
            "+description: Search every file.",
            "+parameter query: A word of the code.",
        ],
        "tool example search/0": [
            '-input: {"query": "TODO", "limit": 5}',
            '+input: {"query": "FIXME", "limit": 5}',
        ],
        "task example guide/security/sqli": [
            "-objective: Find SQL injection.",
            '-step 0 input: {"query": "execute(", "limit": 5}',
            "+objective: Find injected SQL.",
            '+step 0 input: {"query": "raw(", "limit": 5}',
        ],
        "added task example guide/security/leak": [
            "+objective: Find leaked keys.",
            "+step 0 tool: search",
            "+step 0 description: Look for keys.",
            '+step 0 input: {"query": "api_key", "limit": 5}',
            '+step 0 output: {"hits": []}',
            '+outcome: {"severity": "high", "note": "A key is in the code."}',
        ],
        "removed task example guide/security/xss": [
            "-objective: Find cross-site scripting.",
            "-steps: none",
            '-outcome: {"severity": "low", "note": ""}',
        ],
        "output field Review.severity": [
            "-description: How bad it is.",
            "+description: How urgent it is.",
            '+aliases: ["urgency", "level"]',
            "+option low: Can wait.",
        ],
        "visibility guide/style": ["-shown", "+no longer shown"],
    }


def test_diff_lists_parts_kind_by_kind(console: Console, project: Path) -> None:
    store = make_project(project)
    taken_back = ["output field Review.severity", "visibility guide/style"]
    for part in taken_back:
        store.remove_override(ns="tests/agents", prompt_key="review", part=part)
    _, second, *_ = store.history(ns="tests/agents", prompt_key="review")

    parts = _document(console, "diff", NAME, "--from", second.id)["parts"]

    assert [part["part"] for part in parts] == list(PARTS.values())
    assert [part["part"] for part in parts if part["after"] is None] == taken_back


def test_diff_of_replaced_steps_shows_the_steps_that_go(console: Console, project: Path) -> None:
    store = LocalPromptOverridesStore(project)
    make_project(project)
    sqli = ("guide", "security", "sqli")
    store.set_task_example_override(prompt_of(project), path=sqli, steps_json="[]")

    between = _changes(console("diff", NAME).out)
    whole = _changes(console("diff", NAME, "--template", TEMPLATE).out)

    assert between == {
        "task example guide/security/sqli": [
            "-objective: Find injected SQL.",
            '-step 0 input: {"query": "raw(", "limit": 5}',
            "+steps: none",
        ]
    }
    assert whole["task example guide/security/sqli"] == [
        "-step 0 tool: search",
        "-step 0 description: Look for queries.",
        '-step 0 input: {"query": "execute(", "limit": 5}',
        '-step 0 output: {"hits": ["db.py"]}',
        "+steps: none",
    ]


def test_diff_of_a_removal_between_revisions_says_what_happened(
    console: Console, project: Path
) -> None:
    store = make_project(project)
    part = "removed task example guide/security/xss"
    store.remove_override(ns="tests/agents", prompt_key="review", part=part)
    assert console("diff", NAME).out.endswith(f"\n{part}: removed\n")

    store.remove_task_example(prompt_of(project), path=("guide", "security", "xss"))
    assert console("diff", NAME).out.endswith(f"\n{part}: added\n")


def test_diff_with_the_source_says_which_of_every_kind_are_not_applied(
    console: Console, project: Path
) -> None:
    make_project(project)
    edit_source(project, "Find cross-site scripting.", "Find scripting.")
    edit_source(project, "result_type=str", "result_type=float")

    parts = _document(console, "diff", NAME, "--template", TEMPLATE)["parts"]

    assert {part["part"] for part in parts if part["status"] == "skipped"} == {
        "added task example guide/security/leak",
        "removed task example guide/security/xss",
    }
    assert {part["reason"] for part in parts} == {"stale", None}


def test_hostile_texts_of_no_kind_reach_a_terminal(
    console: Console, project: Path, programs: Programs
) -> None:
    _write_hostile(project)

    for command in ("show", "diff", "history"):
        piped = console(command, NAME).out
        assert not CONTROLS.search(piped.encode())
        assert "\u202e" not in piped
    got = on_terminal(programs, "show", NAME, folder=project)

    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m|\r\n", "", got).encode())
    assert "\u202e" not in got
    # Those of inputs, outputs and outcomes are JSON, which escapes line breaks.
    assert console("show", NAME).out.count(f": {SPELLED}\n    next: line\n") == 9


def test_long_texts_are_wrapped_on_a_terminal_only(
    console: Console, project: Path, programs: Programs
) -> None:
    store = make_project(project)
    long = " ".join(["word"] * 40)
    store.set_tool_override(prompt_of(project), name="search", description=long)

    got = on_terminal(programs, "show", NAME, folder=project, NO_COLOR="1")

    lines = got.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  description: word"))
    assert all(len(line) <= 60 for line in lines[start : start + 4])
    assert lines[start + 1].startswith("    word word")
    assert f"\n  description: {long}\n" in console("show", NAME).out


def _document(console: Console, *arguments: str) -> Any:
    return json.loads(console(*arguments, "--json").out)


def _changes(diff: str) -> dict[str, list[str]]:
    """Return the changed lines of each part."""
    changes: dict[str, list[str]] = {}
    for block in diff.split("\n--- ")[1:]:
        name, _, rest = block.partition(" (before)\n")
        lines = rest.splitlines()[1:]
        changes[name] = [line for line in lines if line[:1] in {"+", "-"}]
    return changes


def _write_hostile(project: Path) -> None:
    """Write a text that a terminal would obey into every text of every kind."""
    store = make_project(project)
    prompt, value = prompt_of(project), json.dumps({"query": HOSTILE}, ensure_ascii=False)
    outcome = json.dumps({"severity": "low", "note": HOSTILE})
    step = {"tool_name": "search", "description": HOSTILE, "input": {"query": HOSTILE}}
    store.set_tool_override(
        prompt, name="search", description=HOSTILE, param_descriptions={"query": HOSTILE}
    )
    store.set_tool_example_override(
        prompt, tool_name="search", example_index=0, description=HOSTILE, input_json=value
    )
    store.set_task_example_override(
        prompt,
        path=("guide", "security", "sqli"),
        objective=HOSTILE,
        outcome_json=outcome,
        step_overrides={0: TaskStepOverride(step_index=0, description=HOSTILE)},
    )
    store.add_task_example(
        prompt,
        container_path=("guide", "security"),
        key="leak",
        objective=HOSTILE,
        outcome_json=outcome,
        steps_json=json.dumps([{**step, "output": {"hits": [HOSTILE]}}]),
    )
    store.set_output_field_override(
        prompt,
        field="Review.severity",
        description=HOSTILE,
        aliases=["lev\u202eel"],
        value_descriptions={"low": HOSTILE},
    )

"""The triage example: its data, its loader, and that its scripts do what they say."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from programs import Programs
from promptgraft import GepaExample, OfflineAdapter, Prompt, PromptResponse, Session
from promptgraft.errors import DataFormatError

FOLDER = Path(__file__).parents[2] / "examples" / "triage"
TRAINING, UNSEEN = FOLDER / "train.jsonl", FOLDER / "test.jsonl"


def load_task() -> ModuleType:
    spec = importlib.util.spec_from_file_location("triage_task", FOLDER / "task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # attrs and cattrs look the annotations of a class up in its module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


task = load_task()
tickets: tuple[GepaExample, ...] = task.load_tickets(TRAINING)
unseen: tuple[GepaExample, ...] = task.load_tickets(UNSEEN)


def message_of(example: GepaExample) -> str:
    ticket: Any = example.params[0]
    return " ".join(re.findall(r"\w+", ticket.message.lower()))


def test_there_are_enough_tickets_of_every_queue() -> None:
    for examples, least in ((tickets, 20), (unseen, 10)):
        counts = Counter(example.label for example in examples)
        assert set(counts) == set(task.Queue)
        assert min(counts.values()) >= least


def test_ids_are_unique_across_both_files() -> None:
    ids = [example.id for example in (*tickets, *unseen)]
    assert len(set(ids)) == len(ids)


def test_no_message_is_in_both_files_or_twice_in_one() -> None:
    messages = [message_of(example) for example in (*tickets, *unseen)]
    assert len(set(messages)) == len(messages)


def test_no_ticket_names_its_queue_in_the_spelling_of_the_answer() -> None:
    for example in (*tickets, *unseen):
        (ticket,) = example.params
        names = [queue.value for queue in task.Queue if "_" in queue.value]
        assert not any(name in str(ticket) for name in names)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", r"Expecting property name"),
        ("[]", r"expected an object|expected"),
        ('{"id": "x"}', r"required key missing"),
        (
            '{"id": "x", "subject": "s", "message": "m", "plan": "free", "queue": "postage"}',
            r"expected one of .*'billing'.*found 'postage'",
        ),
        (
            '{"id": 7, "subject": "s", "message": "m", "plan": "free", "queue": "sync"}',
            r"expected .*found 7",
        ),
        (
            '{"id": "x", "subject": "s", "message": "m", "plan": "free", "queue": "sync", "q": 1}',
            r"unknown key `q`",
        ),
        (
            '{"id": "good", "subject": "s", "message": "m", "plan": "free", "queue": "sync"}',
            r"the id `good` occurs twice",
        ),
    ],
)
def test_a_broken_line_is_reported_with_file_and_line(
    tmp_path: Path, line: str, fault: str
) -> None:
    good = '{"id": "good", "subject": "s", "message": "m", "plan": "free", "queue": "sync"}'
    path = tmp_path / "tickets.jsonl"
    path.write_text(f"{good}\n\n{line}\n", "utf-8")
    with pytest.raises(DataFormatError, match=rf"tickets\.jsonl:3.*(?:{fault})"):
        task.load_tickets(path)


def test_feedback_names_what_was_expected_and_what_was_answered() -> None:
    example = next(example for example in tickets if example.label is task.Queue.SYNC)
    right = PromptResponse[object](text="sync", output=task.Queue.SYNC)
    wrong = PromptResponse[object](text="billing", output=task.Queue.BILLING)
    assert task.feedback(example, right, Session()).score == 1.0
    verdict = task.feedback(example, wrong, Session())
    assert verdict.score == 0.0
    assert verdict.feedback == "expected `sync`, the answer was `billing`"


def test_the_baseline_is_neither_helpless_nor_good() -> None:
    share = task.score(Prompt(task.TEMPLATE), unseen, OfflineAdapter())
    assert 0.4 <= share <= 0.6


def test_every_ticket_renders_and_the_ticket_section_is_not_overridable() -> None:
    for example in (*tickets, *unseen):
        assert Prompt(task.TEMPLATE).bind(*example.params).render().text
    overridable = [
        section.path[0] for section in task.TEMPLATE.descriptor.sections if section.overridable
    ]
    assert overridable == ["role", "queues", "conventions"]


@pytest.mark.thorough
def test_a_search_hides_the_worked_tickets_that_mislead(tmp_path: Path, programs: Programs) -> None:
    said = programs.output(FOLDER / "shown.py", folder=tmp_path)
    held_out = re.search(r"held-out: +(\d\.\d+) -> (\d\.\d+) on", said)
    characters = re.search(r"characters: ([\d,]+) -> ([\d,]+)", said)
    assert held_out is not None
    assert characters is not None
    assert float(held_out[2]) - float(held_out[1]) >= 0.15
    before, after = (int(figure.replace(",", "")) for figure in characters.groups())
    assert after < before / 2
    assert "last-year: no longer shown" in said


def test_optimizing_helps_on_unseen_tickets_and_another_process_uses_the_winner(
    tmp_path: Path, programs: Programs
) -> None:
    (tmp_path / ".promptgraft").mkdir()
    said = programs.output(FOLDER / "optimize.py", folder=tmp_path)
    held_out = re.search(r"held-out: +(\d\.\d+) -> (\d\.\d+) on", said)
    assert held_out is not None
    assert float(held_out[2]) - float(held_out[1]) >= 0.2
    assert str(tmp_path) in said
    used = programs.output(FOLDER / "use.py", folder=tmp_path)
    assert "sections improved: 1; overrides skipped: 0" in used
    assert "Charged twice" in used

"""A command that waits for a slow model says what for."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from promptgraft.cli.progress import EvalProgress, PlainProgress, Silence
from promptgraft.search.events import Working
from promptgraft.testing import FakeClock

SHORT = 0.01


def test_the_silence_is_broken_and_then_twice_as_long() -> None:
    lines: queue.Queue[str] = queue.Queue()
    with Silence(lines.put, lambda: "an answer", seconds=SHORT):
        first, second = lines.get(timeout=60), lines.get(timeout=60)
    assert first.startswith("still waiting for an answer (")
    assert second.startswith("still waiting for an answer (")


def test_nothing_is_said_where_nothing_is_waited_for() -> None:
    asked = threading.Semaphore(0)
    lines: list[str] = []

    def what() -> str:
        asked.release()
        return ""

    with Silence(lines.append, what, seconds=SHORT):
        assert asked.acquire(timeout=60)
    assert lines == []


def test_an_evaluation_says_how_many_answers_are_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    progress = EvalProgress(3, silence=SHORT)
    say = progress._say

    def watched(what: str) -> None:
        say(what)
        told.set()

    monkeypatch.setattr(progress._silence, "_say", watched)
    with progress:
        for _ in range(3):
            progress.begun()
        progress.ended(None)
        assert told.wait(60)
    assert "still waiting for 2 answers, 1 of 3 are there" in capsys.readouterr().err


def test_a_run_says_what_it_is_doing(capsys: pytest.CaptureFixture[str]) -> None:
    told = threading.Event()

    class Watched(PlainProgress):
        def say(self, what: str) -> None:
            super().say(what)
            if "waiting" in what:
                told.set()

    with Watched("title", silence=SHORT):
        assert told.wait(60)
    assert "still waiting for an answer, starting (" in capsys.readouterr().err


def test_work_that_begins_right_after_other_work_is_what_a_run_waits_for() -> None:
    said: queue.Queue[str] = queue.Queue()

    class Watched(PlainProgress):
        def say(self, what: str) -> None:
            said.put(what)

    fields: dict[str, Any] = {
        "done": 0,
        "total": 1,
        "cost": None,
        "rollouts": 4,
        "reflections": 0,
        "tokens": 0,
    }
    with Watched("title", FakeClock(), silence=SHORT) as progress:
        for position in ("step/1/parent", "step/1/reflect/0"):
            event = Working(position=position, **fields)
            progress.on_event(event)
        while "waiting" not in (line := said.get(timeout=60)) or "starting" in line:
            pass
    assert "step 1: writing a new text (" in line

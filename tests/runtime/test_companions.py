"""Plain functions of users that hang: what ends the wait for them, and what does not wait."""

from __future__ import annotations

import contextvars
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from promptgraft import (
    BlackBox,
    Case,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Texts,
    evaluate,
)
from promptgraft.adapters import FunctionAdapter, ProviderAdapter
from promptgraft.adapters.base import ModelCalled, evaluated
from promptgraft.errors import BudgetExhaustedError, DeadlineExceededError, RunCancelledError
from promptgraft.evals import metrics
from promptgraft.evals.types import Answer
from promptgraft.runtime import Cancellation, Deadline, companions
from promptgraft.runtime.companions import interruptible
from promptgraft.runtime.session import Session
from targets.test_texts import nothing

HANGING = """
import threading
import promptgraft as pg

def {hangs}(*_):
    threading.Event().wait()

def {answers}(*_):
    return 1.0

if __name__ == "__main__":
    texts = pg.Texts({{"task": "Name the team."}}, run=run, key="team")
    writer = pg.ScriptedAdapter(lambda _: "none")
    cases = [(f"q{{n}}", "a") for n in range(20)]
    result = pg.optimize(
        texts, cases, judge, reflection_model=writer, limits=pg.Limits(timeout=0.5)
    )
    print(result.stop_reason)
"""


def in_pool(call: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.mark.parametrize(("hangs", "answers"), [("judge", "run"), ("run", "judge")])
def test_a_program_ends_although_a_function_hangs(hangs: str, answers: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HANGING.format(hangs=hangs, answers=answers))
    ended = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stdout, ended.returncode) == ("deadline\n", 0)


def test_the_wait_ends_with_the_deadline_and_when_the_run_is_cancelled() -> None:
    hang, cancellation = threading.Event(), Cancellation()
    with pytest.raises(DeadlineExceededError):
        interruptible(hang.wait, "x", Deadline.after(0.05))
    timer = threading.Timer(0.05, cancellation.set, ["enough"])
    timer.start()
    with pytest.raises(RunCancelledError):
        in_pool(lambda: interruptible(hang.wait, "x", Deadline(cancellation=cancellation)))
    hang.set()


TOLD = MarkdownSection(title="Task", key="task", template="Answer.")
ASKED = Prompt(PromptTemplate[Any](ns="team", key="desk", sections=(TOLD,)))
Hang = Callable[[], object]


def of_agent(hang: Hang) -> tuple[ProviderAdapter, Prompt[Any]]:
    box = BlackBox({"task": "Answer."}, agent=lambda query, call: hang())
    return box.adapter, box.prompt.bind(Case(id="a", input="q"))


KINDS: dict[str, Callable[[Hang], tuple[ProviderAdapter, Prompt[Any]]]] = {
    "model": lambda hang: (FunctionAdapter(lambda text: hang()), ASKED),
    "agent": of_agent,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_ends_the_wait_for_each_kind_of_function(kind: str) -> None:
    hang = threading.Event()
    adapter, prompt = KINDS[kind](lambda: hang.wait(5))

    session = Session()

    def ask() -> object:
        return evaluated(adapter, prompt, session=session, deadline=Deadline.after(0.05))

    with pytest.raises(DeadlineExceededError):
        in_pool(ask)
    hang.set()
    # It was called, whatever it answers now.
    assert [call.requests for call in session.select_all(ModelCalled)] == [1]


def test_calls_of_a_thread_share_one_beside_it_and_its_context() -> None:
    value = contextvars.ContextVar("value", default=0)

    def calls() -> list[tuple[int, int]]:
        value.set(7)
        seen = [
            interruptible(lambda: (threading.get_ident(), value.get()), "x", None) for _ in "ab"
        ]
        return [*seen, (threading.get_ident(), value.get())]

    first, second, own = ThreadPoolExecutor(1).submit(calls).result()
    assert first == second
    assert first[0] != own[0]
    assert first[1] == own[1] == 7
    # Connections may belong to the main thread.
    assert interruptible(threading.current_thread, "x", None) is threading.main_thread()


def test_a_thread_beside_ends_with_its_own() -> None:
    def beside() -> str:
        return threading.current_thread().name

    assert in_pool(lambda: interruptible(beside, "x", None)) == "promptgraft-function"
    ends = time.monotonic() + 10
    while any(thread.name == "promptgraft-function" for thread in threading.enumerate()):
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_what_a_function_raises_arrives() -> None:
    with pytest.raises(ZeroDivisionError):
        in_pool(lambda: interruptible(lambda: 1 / 0, "x", None))


def test_a_long_wait_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companions, "_TOLD_AFTER", 0.05)
    with caplog.at_level(logging.WARNING, "promptgraft"):
        in_pool(lambda: interruptible(lambda: time.sleep(0.12), "metric `slow`, case `a`", None))
    assert [record.getMessage() for record in caplog.records] == [
        "still at work on metric `slow`, case `a` for 0 s"
    ]


def test_a_metric_may_have_a_time_limit() -> None:
    hang = threading.Event()

    def judge(case: Case, answer: Answer) -> float:
        return float(case.id == "a" or hang.wait())

    metric = metrics.python(function=judge, timeout=0.05)
    texts = Texts({"task": "Name it."}, run=nothing)
    cases = [Case(id=case_id, input="?") for case_id in ("a", "b")]
    judged = evaluate(
        texts.prompt, cases, [metric], adapter=texts.adapter, params=lambda case: case.input
    )
    hang.set()
    [first, second] = [attempt.outcome for attempt in judged.attempts]
    assert first.score == 1.0
    assert second.error == "judge: no verdict within 0.05 s, its `timeout`"


def test_an_interrupted_call_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def calls() -> int:
        with monkeypatch.context() as patch:
            patch.setattr(companions, "_wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                interruptible(hang.wait, "x", Deadline.after(30))
        return interruptible(lambda: 7, "x", Deadline.after(1))

    assert in_pool(calls) == 7
    hang.set()


def test_after_the_end_no_call_is_begun() -> None:
    begun, cancellation = threading.Event(), Cancellation()
    cancellation.set("enough")
    with pytest.raises(RunCancelledError):
        in_pool(lambda: interruptible(begun.set, "x", Deadline(cancellation=cancellation)))
    assert not begun.wait(0.1)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_limit_that_a_metric_meets_itself_is_not_its_timeout(timeout: float | None) -> None:
    def judge(case: Case, answer: Answer) -> float:
        raise BudgetExhaustedError("all spent")

    metric = metrics.python(function=judge, timeout=timeout)
    with pytest.raises(BudgetExhaustedError, match="all spent"):
        metric.judge(Case(id="a", input="?"), Answer(text=""))


FORKING = """
import os
from concurrent.futures import ThreadPoolExecutor
from promptgraft.runtime import Deadline
from promptgraft.runtime.companions import interruptible
from promptgraft.runtime.session import Session
from promptgraft.targets.prompt_rollout import feedback_from

def call():
    return interruptible(os.getpid, "x", Deadline.after(5))

def forks():
    call()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(call() != os.getpid())
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]

with ThreadPoolExecutor(1) as pool:
    print(pool.submit(forks).result())
"""


def test_a_forked_process_has_threads_of_its_own() -> None:
    command = [sys.executable, "-c", FORKING]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "0\n"


class Heard(Cancellation):
    listeners = 0

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners += 1
        undo = super().listen(listener)

        def counted() -> None:
            self.listeners -= 1
            undo()

        return counted


def test_nothing_of_a_call_outlives_it() -> None:
    cancellation = Heard()

    def is_gone() -> bool:
        thing = threading.Event()
        alive = weakref.ref(thing)
        interruptible(partial(str, thing), "x", Deadline(cancellation=cancellation))
        del thing
        ends = time.monotonic() + 5
        while alive() is not None and time.monotonic() < ends:
            time.sleep(0.01)
        return alive() is None

    assert in_pool(is_gone)
    assert cancellation.listeners == 0

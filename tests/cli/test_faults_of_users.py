"""Exceptions in users' code end a command with one line, lose nothing, and never exit with 70."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.console import Console

JOBS = '''
from __future__ import annotations

import itertools

import attrs

from optimizers.worlds import PROMPT, answer, config, propose
from promptgraft import (
    EventBus,
    GepaConfig,
    GepaExample,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    MarkdownSection,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.errors import JournalMismatchError
from promptgraft.targets import Identity, Module, TextTarget

CALLS = itertools.count()


def late(what):
    """Answer well at first, and break once something was found."""

    def reply(rendered):
        if next(CALLS) == 60:
            what()
        return answer(rendered)

    return reply


def job(task=answer, *, prompt=PROMPT, store=None, bus=None, **changes):
    context = OptimizationContext(
        task if hasattr(task, "evaluate") else ScriptedAdapter(task, identity="task"),
        reflection_adapter=ScriptedAdapter(propose, identity="writer"),
        overrides_store=store or InMemoryPromptOverridesStore(),
        event_bus=bus,
    )
    return OptimizationJob(prompt, context, config(rollout_budget=90, **changes))


def raising(*_, **__):
    raise KeyError("oops")


class Silent:
    identity = "silent"

    def evaluate(self, prompt, *, session, deadline=None):
        return None


class Full(LocalPromptOverridesStore):
    def mutate_all(self, *arguments, **options):
        raise OSError(28, "No space left on device")


@attrs.frozen
class Word(Module):
    name: str
    kind = "word"


class Words(TextTarget):
    identity = Identity(name="own/words")
    modules = (Word("first"),)

    def source(self, module):
        return "a"

    def rollout(self, candidate, example, deadline):
        raise KeyError("oops")


def own_target():
    context = OptimizationContext(None, reflection_adapter=ScriptedAdapter(propose))
    settings = GepaConfig(
        rollout_budget=40,
        pareto_set_size=2,
        minibatch_size=2,
        training_examples=[GepaExample(id=f"e{n}", params=(n,)) for n in range(4)],
    )
    return OptimizationJob(Words(), context, settings)


def enabled():
    section = MarkdownSection(title="Rules", key="rules", template="Be brief.", enabled=raising)
    template = PromptTemplate(ns="toy", key="words", sections=[section])
    return job(prompt=Prompt(template), target_section_paths=(("rules",),))


def handler():
    bus = EventBus()
    bus.subscribe(object, raising)
    return job(bus=bus)


adapter = lambda: job(late(raising))


def refused():
    raise JournalMismatchError("another question; restore the code")


changed = lambda: job(late(refused))
nothing = lambda: job(Silent())
store = lambda: job(store=Full())
example_formatter = lambda: job(example_formatter=raising)
trace_formatter = lambda: job(trace_formatter=raising)
stopper = lambda: job(stoppers=(raising,))
feedback = lambda: job(feedback_fn=raising)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "jobs.py").write_text(JOBS, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "jobs", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("adapter", 2, "adapter `task` on example `e"),
        ("nothing", 2, "adapter `silent` on example `e0`: `evaluate` must return a PromptRespo"),
        ("store", 2, "the winner is not stored: OSError: [Errno 28] No space left on device"),
        ("enabled", 2, "example `e0`: section `rules`: `enabled` raised KeyError: 'oops'"),
        ("example_formatter", 2, "example_formatter on example `e0` raised KeyError: 'oops'"),
        ("trace_formatter", 2, "trace_formatter on example `e0` raised KeyError: 'oops'"),
        ("stopper", 2, "stoppers[0] (`raising`) after step 0 raised KeyError: 'oops'"),
        ("feedback", 2, "feedback function on example `e0` raised KeyError: 'oops'"),
        ("own_target", 2, "the target's rollout of example `e0` raised KeyError: 'oops'"),
        ("handler", 1, ""),
    ],
)
def test_what_the_code_of_a_job_raises_is_one_line_that_names_it(
    name: str, code: int, said: str, folder: Path, console: Console
) -> None:
    ended = console("optimize", f"jobs.py:{name}", "-q")

    lines = [line for line in ended.err.splitlines() if line.startswith("promptgraft: ")]
    assert ended.code == code, ended.err
    if said:
        assert lines[0].startswith(f"promptgraft: {said}")
        assert len(lines) == 1
        assert "Traceback" not in ended.err


def test_what_was_found_before_the_error_is_shown_with_what_to_do_next(
    folder: Path, console: Console
) -> None:
    ended = console("optimize", "jobs.py:adapter", "-q")
    [run] = (folder / "runs").iterdir()

    lines = ended.out.splitlines()
    assert lines[0] == "toy/words: better on validation, not checked, stopped early"
    assert any(line.startswith("validation   0.000  ") for line in lines)
    assert any(line.startswith("stopped     failed: adapter `task` on example ") for line in lines)
    assert f"kept in     runs/{run.name}" in lines
    assert lines[-2] == f"  promptgraft resume {run.name}"
    assert lines[-1].startswith(f"  promptgraft apply {run.name} --candidate ")
    assert ended.err.endswith(f"; `promptgraft resume {run.name}` resumes it\n")


def test_the_document_of_a_run_that_failed_has_what_was_found(
    folder: Path, console: Console
) -> None:
    ended = console("optimize", "jobs.py:adapter", "--json")

    document = json.loads(ended.out.splitlines()[-1])
    assert (ended.code, document["event"]) == (2, "result")
    assert document["stop"]["reason"] == "failed"
    assert document["verdict"] == "better on validation, not checked"
    assert document["winner"]


def test_a_run_that_its_journal_refuses_is_not_advised_to_resume(
    folder: Path, console: Console
) -> None:
    ended = console("optimize", "jobs.py:changed", "-q")

    assert ended.err.endswith("promptgraft: another question; restore the code\n")
    assert "promptgraft resume" not in ended.out

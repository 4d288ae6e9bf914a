"""Nothing that a model or a user says makes a journal or a question endless."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

import agent_world
from json_replies import json_reply
from optimizers.worlds import Run, config, instruction, judge, records
from promptgraft import (
    GepaExample,
    GepaOptimizer,
    MarkdownSection,
    MemoryJournal,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    RolloutRecord,
    ScriptedAdapter,
    Tool,
    ToolExample,
)
from promptgraft.algorithms.gepa import ToolExampleTarget
from promptgraft.errors import OutputError, PromptgraftError, TransientProviderError
from promptgraft.ground.serde import canonical_json
from promptgraft.search import RejectionReason
from promptgraft.targets import Candidate, Identity, Module, TextTarget

LONG = "# `` " * 60_000
"""As long as the texts that an audit made a question of 900,000 characters with."""


def sizes(journal: MemoryJournal) -> Mapping[str, int]:
    """Return how long the longest record of each kind is."""
    found: dict[str, int] = {}
    for record in records(journal).values():
        length = len(canonical_json(record.answer))
        found[record.kind] = max(length, found.get(record.kind, 0))
    return found


def asked_at_most(run: Run) -> int:
    return max(len(request.text) for request in run.reflection.requests)


def raises(error: Exception) -> Callable[[object], str]:
    def reply(_: object) -> str:
        raise error

    return reply


@pytest.mark.parametrize(
    "task",
    [lambda _: LONG, raises(OutputError(LONG)), raises(TransientProviderError(LONG))],
    ids=["an answer", "an answer that does not fit", "a fault of the provider"],
)
def test_what_a_rollout_shows_is_bounded_where_it_is_recorded(task: Any) -> None:
    def talkative(example: Any, response: Any, session: Any) -> RolloutFeedback:
        found = judge(example, response, session)
        return attrs.evolve(found, feedback=f"{found.feedback} {LONG}", eval_trace=LONG)

    journal = MemoryJournal()
    settings = config(
        feedback_fn=talkative,
        example_formatter=lambda example, response: (LONG, LONG),
        trace_formatter=lambda session: LONG,
        rollout_budget=40,
    )
    run = Run(settings, task=task, journal=journal)
    with contextlib.suppress(PromptgraftError):
        run.start()
    assert max(sizes(journal).values()) < 45_000
    if run.reflection.requests:
        assert asked_at_most(run) < 120_000


def test_a_target_of_ones_own_is_bounded_as_well() -> None:
    @attrs.frozen
    class Text(Module):
        name: str
        kind = "text"

    class Endless(TextTarget):
        identity = Identity(name="endless")
        modules = (Text(LONG), Text("b"))

        def source(self, module: Module) -> str:
            return "short" if module.name == "b" else "tiny"

        def rollout(self, candidate: Candidate, example: GepaExample, deadline: Any) -> Any:
            return RolloutRecord(
                example_id=example.id,
                inputs_repr=LONG,
                output_repr=LONG,
                tool_trace_repr=LONG,
                feedback=RolloutFeedback(score=0.0, feedback=LONG, eval_trace=LONG),
                fault=LONG if example.id != "e0" else "",
            )

    journal, writer = MemoryJournal(), ScriptedAdapter(lambda _: instruction("better"))
    context = OptimizationContext(reflection_adapter=writer, journal=journal)
    settings = config(target_section_paths=(), feedback_fn=None, rollout_budget=40)
    GepaOptimizer(context, settings).optimize(Endless())
    assert sizes(journal)["rollout"] < 45_000
    assert max(len(request.text) for request in writer.requests) < 120_000


def test_a_reply_that_never_ends_is_cut_and_refused() -> None:
    journal = MemoryJournal()
    run = Run(
        config(rollout_budget=40, max_failed_reflections=2),
        reflection=lambda _: instruction("x" * 3_000_000),
        journal=journal,
    )
    result = run.start()
    assert {one.reason for one in result.rejections} == {RejectionReason.UNPARSABLE}
    assert "the reply was cut off before its end" in result.rejections[0].detail
    assert 1_000_000 <= sizes(journal)["reflection"] < 1_010_000
    assert asked_at_most(run) < 60_000
    again = Run(config(rollout_budget=40, max_failed_reflections=2), journal=journal)
    assert again.start() == result
    assert not again.reflection.requests


def test_a_fault_of_the_reflection_model_is_cut() -> None:
    journal = MemoryJournal()
    run = Run(
        config(rollout_budget=40, max_failed_reflections=2),
        reflection=raises(TransientProviderError(LONG)),
        journal=journal,
    )
    result = run.start()
    assert {one.reason for one in result.rejections} == {RejectionReason.REFLECTION_FAILED}
    assert max(len(one.detail) for one in result.rejections) < 2_100
    assert max(sizes(journal).values()) < 10_000


def test_what_the_parts_of_a_prompt_say_is_cut_in_a_question() -> None:
    params, said = agent_world.SearchParams, "# `` " * 20_000
    calls = [
        ToolExample[Any, Any](description=said, input=params("main"), output="a.py:1")
        for _ in range(3)
    ]
    tool = Tool[Any, Any](
        name="search", description=said, params_type=params, result_type=str, examples=calls[:1]
    )
    other = attrs.evolve(tool, name="other", examples=calls)
    question = MarkdownSection(title="Q", key="question", template="Do you know $word?")
    rules = MarkdownSection(title="R", key="rules", template=said, tools=(tool, other))
    short = attrs.evolve(tool, name="short", description="Short.", examples=())
    notes = MarkdownSection(title="N", key="notes", template="None.", tools=(short,))
    prompt = Prompt(PromptTemplate[object](ns="t", key="p", sections=(question, rules, notes)))
    reply = json_reply(description="Better.", input={"query": "x"}, output="b.py:2")
    for targets in (
        {"target_section_paths": (("notes",),)},
        {"target_section_paths": (), "tools": ("short",)},
        {
            "target_section_paths": (),
            "target_tool_examples": (ToolExampleTarget(tool_name="search", example_index=0),),
            "max_part_chars": 1_000_000,
        },
    ):
        run = Run(
            config(rollout_budget=40, **targets),
            prompt=prompt,
            task=lambda _: "no",
            reflection=lambda _: reply,
        )
        run.start()
        own = len(said) if "target_tool_examples" in targets else 0
        assert asked_at_most(run) < own + 120_000

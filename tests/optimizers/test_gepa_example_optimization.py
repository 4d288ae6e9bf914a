"""Each kind of part alone can be what a prompt lacks, and is found when it may change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest

from agent_world import (
    EXAMPLES,
    REPLIES,
    TEMPLATE,
    TOOL_EXAMPLE,
    WORD,
    Look,
    Outcome,
    Question,
    feedback,
    run,
)
from json_replies import json_reply
from optimizers.worlds import Run, bound, config, numbered
from promptgraft import (
    EventBus,
    InMemoryPromptOverridesStore,
    OptimizationContext,
    OptimizationJob,
    OverlayPromptOverridesStore,
    Prompt,
    PromptResponse,
    RenderedPrompt,
    ScriptedAdapter,
    SectionVisibility,
    Session,
    StopReason,
)
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaExampleGenerated,
    GepaMutationProposed,
    RolloutFeedback,
    ToolExampleTarget,
)
from promptgraft.errors import ConfigError, UnknownPartError
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import BasePromptOverridesStore
from promptgraft.prompt import (
    MarkdownSection,
    PromptTemplate,
    TaskExamplesSection,
    Tool,
    ToolExample,
)
from promptgraft.runtime import SessionProtocol
from promptgraft.search import RejectionReason


def in_tool_example(rendered: RenderedPrompt[object]) -> bool:
    return any(WORD in call.description for call in rendered.tools[0].examples)


def in_tool(rendered: RenderedPrompt[object]) -> bool:
    return WORD in rendered.tools[0].description


def in_task_example(rendered: RenderedPrompt[object]) -> bool:
    return any(
        section.path == ("examples", "first") and WORD in section.text
        for section in rendered.sections
    )


def in_new_example(rendered: RenderedPrompt[object]) -> bool:
    paths = [section.path for section in rendered.sections if WORD in section.text]
    return ("examples", f"the-{WORD}") in paths


def in_summary(rendered: RenderedPrompt[object]) -> bool:
    return any(section.summarized and WORD in section.text for section in rendered.sections)


def without_example(rendered: RenderedPrompt[object]) -> bool:
    return ("examples", "first") not in [section.path for section in rendered.sections]


def in_output_field(rendered: RenderedPrompt[object]) -> bool:
    return WORD in str(rendered.output_schema)


SECTIONS: dict[str, Any] = {"target_section_paths": (("rules",),)}
CASES: list[tuple[Look, dict[str, Any]]] = [
    (in_tool, {"tools": ("search_code",)}),
    (in_tool_example, {"target_tool_examples": (TOOL_EXAMPLE,)}),
    (in_task_example, {"target_task_examples": (("examples", "first"),)}),
    (in_new_example, {"enable_example_generation": True}),
    (in_output_field, {"output_fields": ("Finding.severity",)}),
    (in_summary, {"summaries": (("notes",),)}),
    (without_example, {"visibility": (("examples",), ("rules",))}),
]


@pytest.mark.parametrize(("look", "target"), CASES)
def test_what_only_one_kind_of_part_can_fix_is_fixed_by_it(
    look: Look, target: dict[str, Any]
) -> None:
    found = run(look, **SECTIONS, **target)
    assert found.result.found_better
    assert found.result.best_pareto_mean == 1.0
    assert found.result.stop_reason is StopReason.PERFECT
    assert look(found.rendered())


@pytest.mark.parametrize("look", [look for look, _ in CASES])
def test_without_that_kind_of_part_nothing_is_gained(look: Look) -> None:
    found = run(look, **SECTIONS)
    assert not found.result.found_better
    assert found.store.resolve(TEMPLATE.descriptor, "won") is None


def test_a_question_shows_examples_of_tools_and_that_no_tool_was_called() -> None:
    asked = run(in_tool, **SECTIONS).reflection.requests[0].text
    assert "tool example search_code/0:\n\n```\nFind a name.: " in asked
    assert asked.count("**Trace:**\n\n```\n[no tool was called]\n```") == 2
    of_example = run(
        in_tool, target_section_paths=(), target_tool_examples=(TOOL_EXAMPLE,)
    ).reflection.requests[0]
    assert "tool example search_code/0:" not in of_example.text


def test_a_question_about_an_example_shows_all_failures_and_what_was_tried() -> None:
    never = run(lambda _: False, target_section_paths=(), target_tool_examples=(TOOL_EXAMPLE,))
    first, *later = [
        request.text
        for request in never.reflection.requests
        if request.key == "reflect-tool-example"
    ]
    assert "Tried, and not better" not in first
    assert any("Tried, and not better" in text and "These failed as well" in text for text in later)


def test_the_result_holds_each_kind_under_its_name() -> None:
    found = run(in_new_example, enable_example_generation=True)
    [generated] = found.result.generated_task_examples
    assert generated.container_path == ("examples",)
    assert generated.key == f"the-{WORD}"
    assert found.result.accepted_example_mutations == 1
    assert found.result.gains == {"generated example": 1.0}
    tool = run(in_tool_example, target_tool_examples=(TOOL_EXAMPLE,)).result
    assert set(tool.best_tool_example_overrides) == {("search_code", 0)}
    assert tool.best.tool_example_overrides == tool.best_tool_example_overrides
    assert tool.candidates[0].tool_example_overrides == {}
    task = run(in_task_example, target_task_examples=(("examples", "first"),)).result
    assert set(task.best_task_example_overrides) == {("examples", "first")}
    assert task.best.task_example_overrides == task.best_task_example_overrides
    field = run(in_output_field, output_fields=("Finding.severity",)).result
    assert set(field.best_output_overrides) == {"Finding.severity"}
    summary = run(in_summary, summaries=(("notes",),))
    [best] = summary.result.best_override.summaries.values()
    assert (best.path, best.summary) == (("notes",), f"Be exact: {WORD}.")
    choice = run(without_example, visibility=(("examples",),))
    [hidden] = choice.result.best_override.visibilities.values()
    assert (hidden.path, hidden.visibility) == (("examples", "first"), SectionVisibility.HIDDEN)
    assert choice.result.gains == {"visibility": 1.0}
    [question, *_] = choice.reflection.requests
    assert '"section examples": "full"' in question.text
    assert "section examples: full or summary or hidden" in question.text
    assert "Find the entry point." in question.text
    [question, *_] = summary.reflection.requests
    assert "Notes are kept." in question.text
    assert "All notes since 2019." in question.text


def test_a_run_that_hides_parts_is_resumed_with_the_same_result() -> None:
    settings: dict[str, Any] = {**SECTIONS, "visibility": (("examples",),)}
    whole = run(without_example, **settings).result
    assert len(whole.candidates) > 1
    for budget in (12, 20, 30):
        journal = MemoryJournal()
        run(without_example, journal=journal, **settings, rollout_budget=budget)
        resumed = run(without_example, journal=journal, **settings).result
        assert resumed.candidates == whole.candidates
        assert resumed.scores_matrix == whole.scores_matrix


UNSEEN = "no example shows a part that may change (`{}`); name another part, or add examples that"
FULL = "max_task_examples_per_section: `{}`: there are as many task examples as this allows; raise"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"summaries": (("examples",),)}, UNSEEN.format("summary examples")),
        ({"target_section_paths": (("notes",),)}, UNSEEN.format("section notes")),
        (
            {"enable_example_generation": True, "max_task_examples_per_section": 1},
            FULL.format("new task example in examples"),
        ),
    ],
    ids=["summary", "section", "full"],
)
def test_a_run_in_which_nothing_can_change_is_refused_before_the_first_call(
    options: dict[str, Any], message: str
) -> None:
    def never(rendered: RenderedPrompt[object]) -> bool:
        raise AssertionError("nothing is asked")

    with pytest.raises(ConfigError, match=re.escape(message)):
        run(never, **options)


def test_a_section_that_some_example_shows_may_change() -> None:
    sections = (
        MarkdownSection(
            title="Rules",
            key="rules",
            template="Be exact.",
            enabled=lambda values: values["text"] == "question 3",
        ),
        MarkdownSection(title="Question", key="question", template="$text", overridable=False),
    )
    template = PromptTemplate[object](ns="tests", key="seldom", sections=sections)
    context = OptimizationContext(ScriptedAdapter([]))
    settings = config(training_examples=EXAMPLES, target_section_paths=(("rules",),))
    assert OptimizationJob(Prompt(template), context, settings).plan().reflections > 0


def written(key: str) -> str:
    """Return a new example as a reflector writes it."""
    return json_reply(key=key, objective=key, steps=[], outcome={"severity": "high"})


def added_to(rendered: RenderedPrompt[object]) -> list[str]:
    """Return the keys of the examples that a candidate adds, as it shows them."""
    paths = [found.path for found in rendered.sections]
    return [path[1] for path in paths if path[:-1] == ("examples",) and path[1] != "first"]


def test_generation_goes_on_until_a_section_is_full_and_no_further() -> None:
    """The more examples, the better the answer; the section holds one already."""

    def stars(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=response.text.count("*") / 100, feedback="more")

    def answer(rendered: RenderedPrompt[object]) -> str:
        return json.dumps({"severity": "low", "note": "*" * len(added_to(rendered))})

    session = Session()
    started = Run(
        config(
            target_section_paths=(),
            enable_example_generation=True,
            max_task_examples_per_section=3,
            training_examples=EXAMPLES,
            feedback_fn=stars,
            max_idle_steps=3,
        ),
        prompt=Prompt[object](TEMPLATE),
        task=answer,
        reflection=numbered(lambda number, _: written(f"new-{number}")),
        session=session,
    )
    result = started.start()
    assert result.stop_reason is StopReason.NO_PROGRESS
    assert [example.key for example in result.generated_task_examples] == ["new-0", "new-1"]
    told = session.select_all(GepaExampleGenerated)
    assert [(event.key, event.container_path) for event in told] == [
        ("new-0", ("examples",)),
        ("new-1", ("examples",)),
    ]
    assert max(len(added_to(request)) for request in started.task.requests) == 2
    assert started.reflection.calls == 2


def always(reply: str, rendered: RenderedPrompt[object]) -> str:
    del rendered
    return reply


@attrs.frozen
class Nothing:
    """No parameters."""


def test_examples_of_prompts_and_tools_without_anything_to_say_are_read() -> None:
    """A prompt without tools gets a task example without steps, and a bare tool an example."""
    question = TEMPLATE.sections[-1]
    container = TaskExamplesSection(title="Cases", key="cases", examples=())
    bare = attrs.evolve(TEMPLATE, sections=(question, container))
    example = ToolExample(description="Ask.", input=Nothing(), output="noon")
    now = Tool(
        name="now",
        description="Says the time.",
        params_type=Nothing,
        result_type=str,
        examples=(example,),
    )
    clock = MarkdownSection(title="Clock", key="clock", template="Ask it.", tools=(now,))
    with_tool = attrs.evolve(TEMPLATE, sections=(question, clock))
    call = ToolExampleTarget(tool_name="now", example_index=0)
    cases: tuple[tuple[PromptTemplate[object], str, dict[str, Any]], ...] = (
        (
            bare,
            '{"objective": "o", "outcome": {"severity": "low"}}',
            {"enable_example_generation": True},
        ),
        (
            with_tool,
            '{"description": "Ask it first.", "input": none, "output": "one"}',
            {"target_tool_examples": (call,)},
        ),
    )
    for template, reply, target in cases:
        started = Run(
            config(
                target_section_paths=(),
                training_examples=EXAMPLES,
                feedback_fn=lambda *_: RolloutFeedback(score=0.5, feedback="so so"),
                max_idle_steps=1,
                **target,
            ),
            prompt=Prompt[object](template),
            task=lambda _: '{"severity": "low"}',
            reflection=partial(always, f"```json\n{reply}\n```"),
        )
        result = started.start()
        assert started.reflection.calls > 0
        assert RejectionReason.NOT_BETTER in {one.reason for one in result.rejections}


@pytest.mark.parametrize(("room", "merged"), [(2, False), (3, True)])
def test_a_merge_does_not_overfill_a_section(room: int, merged: bool) -> None:
    """One candidate writes an example for some questions, another one for others."""

    def answer(rendered: RenderedPrompt[object]) -> str:
        added = added_to(rendered)
        right = bound(rendered, "text") in (added or ["neither"])
        return json.dumps({"severity": "high" if right else "low"})

    def write(number: int, rendered: RenderedPrompt[object]) -> str:
        has_one = '"objective": "o' in rendered.text
        return "No more." if has_one else written(("one", "other")[number % 2])

    kinds = ("one", "other", "one", "other", "neither")
    started = Run(
        config(
            target_section_paths=(),
            enable_example_generation=True,
            max_task_examples_per_section=room,
            enable_merge=True,
            minibatch_size=6,
            pareto_set_size=10,
            rollout_budget=300,
            training_examples=[
                GepaExample(id=f"e{n}", params=(Question(kinds[n % 5], again=f"{n}"),))
                for n in range(30)
            ],
            feedback_fn=feedback,
            max_failed_reflections=100,
        ),
        prompt=Prompt[object](TEMPLATE),
        task=answer,
        reflection=numbered(write),
    )
    result = started.start()
    tried = {tuple(added_to(request)) for request in started.task.requests}
    assert {("one",), ("other",)} <= tried
    assert (("one", "other") in tried) == merged
    assert (result.accepted_merges == 1) == merged


GREP = {"tool": "grep", "description": "d", "input": {}, "output": ""}
MISFITS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a value of another type": (
        {"target_tool_examples": (TOOL_EXAMPLE,)},
        json_reply(description="d", input={"query": 5}, output="b"),
        "query",
    ),
    "a field that the parameters do not have": (
        {"target_tool_examples": (TOOL_EXAMPLE,)},
        json_reply(description="d", input={"query": "a", "max": 1}, output="b"),
        "max",
    ),
    "a result of another type": (
        {"target_tool_examples": (TOOL_EXAMPLE,)},
        json_reply(description="d", input={"query": "a"}, output={"file": "b"}),
        "output",
    ),
    "an outcome that is no answer": (
        {"target_task_examples": (("examples", "first"),)},
        json_reply(objective="o", steps=[], outcome={"severity": "urgent"}),
        "urgent",
    ),
    "a tool that there is not": (
        {"enable_example_generation": True},
        json_reply(objective="o", steps=[GREP], outcome={"severity": "low"}),
        "grep",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_an_example_that_does_not_fit_the_types_is_refused_before_it_is_tried(case: str) -> None:
    target, text, said = MISFITS[case]
    settings: dict[str, Any] = {"target_section_paths": (), "training_examples": EXAMPLES, **target}
    started = Run(
        config(**settings, feedback_fn=feedback, max_failed_reflections=1),
        prompt=Prompt[object](TEMPLATE),
        task=lambda _: '{"severity": "low"}',
        reflection=lambda _: text,
    )
    result = started.start()
    assert {refused.reason for refused in result.rejections} == {RejectionReason.DOES_NOT_FIT}
    assert all(said in refused.detail for refused in result.rejections)
    assert started.task.calls == 6 + 3  # the validation set and one minibatch, for the baseline
    assert not result.found_better


def test_a_proposal_for_an_example_is_told_with_the_text_before_and_after() -> None:
    session = Session()
    Run(
        config(
            target_section_paths=(),
            target_tool_examples=(TOOL_EXAMPLE,),
            training_examples=EXAMPLES,
            feedback_fn=feedback,
        ),
        prompt=Prompt[object](TEMPLATE),
        task=lambda rendered: json.dumps(
            {"severity": "high" if in_tool_example(rendered) else "low"}
        ),
        reflection=lambda rendered: REPLIES[rendered.key],
        session=session,
    ).start()
    [told] = session.select_all(GepaMutationProposed)
    assert told.module == "tool example search_code/0"
    assert json.loads(told.before)["description"] == "Find a name."
    assert json.loads(told.after)["description"] == f"Find {WORD}."


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_of_nothing_or_all_leaves_the_other_class_alone(rate: float) -> None:
    found = run(
        lambda _: False,
        **SECTIONS,
        target_tool_examples=(TOOL_EXAMPLE,),
        example_mutation_rate=rate,
        max_failed_reflections=20,
        minibatch_size=1,
        rollout_budget=40,
    )
    asked = {request.key for request in found.reflection.requests}
    assert asked == {"reflect-tool-example" if rate else "reflect-section"}


def test_the_reflector_is_shown_types_and_the_examples_that_are_there() -> None:
    found = run(in_new_example, enable_example_generation=True)
    question = found.reflection.requests[0].text
    assert '"query"' in question
    assert "Find the entry point." in question
    assert f"needs {WORD}" in question
    assert "\n\nIt is added to this section:\n\n```\n" in question
    assert "\n\nsection notes, which the model was not shown:\n\n```\n" in question
    assert "\n\nsummary notes:\n\n```\n" in question
    found = run(in_new_example, target_section_paths=(("role",), ("rules",)), whole_prompt=1.0)
    assert "\n\nsection notes, which the model was not shown:" in found.reflection.requests[0].text


def unknown_targets() -> list[tuple[dict[str, Any], str]]:
    return [
        ({"tools": ("serch_code",)}, "has no tool `serch_code`"),
        (
            {
                "target_tool_examples": (
                    ToolExampleTarget(tool_name="search_code", example_index=7),
                )
            },
            "has no tool example `search_code/7`",
        ),
        (
            {"target_task_examples": (("examples", "second"),)},
            "has no task example `examples/second`",
        ),
        ({"output_fields": ("Finding.sverity",)}, "did you mean `Finding.severity`"),
        ({"summaries": (("rules",),)}, "has no summary `rules`; overridable: `notes`, `examples`"),
    ]


@pytest.mark.parametrize(("target", "message"), unknown_targets())
def test_an_unknown_target_is_refused_with_what_exists(
    target: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnknownPartError, match=message):
        run(in_tool, **target)


ADDED = ("examples", "added")


def with_added(store: BasePromptOverridesStore) -> BasePromptOverridesStore:
    """Return a store whose tag adds an example to those of the source."""
    store.add_task_example(
        Prompt(TEMPLATE),
        tag="won",
        container_path=ADDED[:-1],
        key=ADDED[-1],
        objective="Find nothing.",
        outcome_json='{"severity": "low"}',
        steps_json="[]",
    )
    return store


def over(base: BasePromptOverridesStore) -> BasePromptOverridesStore:
    return OverlayPromptOverridesStore(base=base, overlay=InMemoryPromptOverridesStore())


def in_added_example(rendered: RenderedPrompt[object]) -> bool:
    return any(found.path == ADDED and WORD in found.text for found in rendered.sections)


@pytest.mark.parametrize("through", [lambda base: base, over], ids=["its store", "an overlay"])
def test_an_example_that_the_store_has_added_may_be_a_target(
    through: Callable[[BasePromptOverridesStore], BasePromptOverridesStore],
) -> None:
    bus, generated = EventBus(), list[object]()
    bus.subscribe(GepaExampleGenerated, generated.append)
    base = with_added(InMemoryPromptOverridesStore())
    store = through(base)
    found = run(in_added_example, store=store, bus=bus, target_task_examples=(ADDED,))
    assert found.result.found_better
    assert found.result.persisted
    assert in_added_example(found.rendered())
    # It was there already, and is no new one.
    assert generated == []
    assert found.result.generated_task_examples == ()
    shown = bound(found.reflection.requests[0], "current")
    assert "Find nothing." in shown
    if store is not base:
        assert "Find nothing." in str(base.resolve(TEMPLATE.descriptor, "won"))


@pytest.mark.parametrize("path", [("examples", "first"), ADDED])
def test_an_example_that_is_removed_is_refused_as_a_target(path: tuple[str, ...]) -> None:
    store = over(with_added(InMemoryPromptOverridesStore()))
    store.remove_task_example(Prompt(TEMPLATE), tag="won", path=path)
    with pytest.raises(UnknownPartError) as caught:
        run(in_task_example, store=store, target_task_examples=(path,))
    message = str(caught.value)
    if path == ADDED:
        assert "has no task example `examples/added`" in message
    else:
        assert message == (
            "task example examples/first is not shown: the store holds an override that removes "
            "it; name another target, or forget `removed task example examples/first` with "
            "`remove_override`"
        )


def all_targets() -> dict[str, Any]:
    targets: dict[str, Any] = {**SECTIONS, "enable_merge": True}
    for _, target in CASES:
        targets.update(target)
    return targets


def test_the_same_seed_gives_the_same_run_over_all_kinds() -> None:
    def once() -> Outcome:
        return run(in_new_example, **all_targets())

    assert once().result == once().result


def test_the_winner_of_all_kinds_is_one_write_and_renders() -> None:
    found = run(in_new_example, **all_targets(), max_failed_reflections=50)
    assert found.result.found_better
    override = found.store.resolve(TEMPLATE.descriptor, "won")
    assert override == found.result.best_override
    assert not Prompt(TEMPLATE).bind(Question("x")).render().applied
    assert found.rendered().skipped == ()

"""Each kind of part alone can be what a prompt lacks, and is found when it may change."""

from __future__ import annotations

import pytest

from agent_world import (
    TEMPLATE,
    TOOL_EXAMPLE,
    WORD,
    Look,
    Outcome,
    Question,
    run,
)
from promptgraft import Prompt, RenderedPrompt, StopReason
from promptgraft.errors import UnknownPartError
from promptgraft.optimizers.gepa import ToolExampleTarget


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


def in_output_field(rendered: RenderedPrompt[object]) -> bool:
    return WORD in str(rendered.output_schema)


SECTIONS = {"target_section_paths": (("rules",),)}
CASES: list[tuple[Look, dict[str, object]]] = [
    (in_tool, {"target_tools": ("search_code",)}),
    (in_tool_example, {"target_tool_examples": (TOOL_EXAMPLE,)}),
    (in_task_example, {"target_task_examples": (("examples", "first"),)}),
    (in_new_example, {"enable_example_generation": True}),
    (in_output_field, {"target_output_fields": ("Finding.severity",)}),
]


@pytest.mark.parametrize(("look", "target"), CASES)
def test_what_only_one_kind_of_part_can_fix_is_fixed_by_it(
    look: Look, target: dict[str, object]
) -> None:
    found = run(look, **SECTIONS, **target)
    assert found.result.improved
    assert found.result.best_pareto_mean == 1.0
    assert found.result.stop_reason is StopReason.PERFECT
    assert look(found.rendered())


@pytest.mark.parametrize("look", [look for look, _ in CASES])
def test_without_that_kind_of_part_nothing_is_gained(look: Look) -> None:
    found = run(look, **SECTIONS)
    assert not found.result.improved
    assert found.store.resolve(TEMPLATE.descriptor, "won") is None


def test_the_result_holds_each_kind_under_its_name() -> None:
    found = run(in_new_example, enable_example_generation=True)
    [generated] = found.result.generated_task_examples
    assert generated.container_path == ("examples",)
    assert generated.key == f"the-{WORD}"
    assert found.result.accepted_example_mutations == 1
    assert found.result.gains == {"generated example": 1.0}
    tool = run(in_tool_example, target_tool_examples=(TOOL_EXAMPLE,)).result
    assert set(tool.best_tool_example_overrides) == {("search_code", 0)}
    task = run(in_task_example, target_task_examples=(("examples", "first"),)).result
    assert set(task.best_task_example_overrides) == {("examples", "first")}
    field = run(in_output_field, target_output_fields=("Finding.severity",)).result
    assert set(field.best_output_overrides) == {"Finding.severity"}


def test_a_section_that_is_full_gets_no_more_examples() -> None:
    found = run(
        lambda rendered: len(rendered.text) > 10_000,
        enable_example_generation=True,
        max_task_examples_per_section=1,
        max_idle_steps=3,
    )
    assert found.result.stop_reason is StopReason.NO_PROGRESS
    assert found.reflection.calls == 0


def test_the_rate_decides_between_instructions_and_examples() -> None:
    def share(rate: float) -> float:
        found = run(
            lambda _: False,
            **SECTIONS,
            target_tool_examples=(TOOL_EXAMPLE,),
            example_mutation_rate=rate,
            max_failed_reflections=10_000,
            rollout_budget=1_000,
        )
        asked = [request.key for request in found.reflection.requests]
        return asked.count("reflect-tool-example") / len(asked)

    assert share(0.0) == 0
    assert share(1.0) == 1
    assert 0.15 < share(0.3) < 0.45


def test_the_reflector_is_shown_types_and_the_examples_that_are_there() -> None:
    found = run(in_new_example, enable_example_generation=True)
    question = found.reflection.requests[0].text
    assert '"query"' in question
    assert "Find the entry point." in question
    assert f"needs {WORD}" in question


def unknown_targets() -> list[tuple[dict[str, object], str]]:
    return [
        ({"target_tools": ("serch_code",)}, "has no tool `serch_code`"),
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
        ({"target_output_fields": ("Finding.sverity",)}, "did you mean `Finding.severity`"),
    ]


@pytest.mark.parametrize(("target", "message"), unknown_targets())
def test_an_unknown_target_is_refused_with_what_exists(
    target: dict[str, object], message: str
) -> None:
    with pytest.raises(UnknownPartError, match=message):
        run(in_tool, **target)


def all_targets() -> dict[str, object]:
    targets: dict[str, object] = {**SECTIONS, "enable_merge": True}
    for _, target in CASES:
        targets.update(target)
    return targets


def test_the_same_seed_gives_the_same_run_over_all_kinds() -> None:
    def once() -> Outcome:
        return run(in_new_example, **all_targets())

    assert once().result == once().result


def test_the_winner_of_all_kinds_is_one_write_and_renders() -> None:
    found = run(in_new_example, **all_targets(), max_failed_reflections=50)
    assert found.result.improved
    override = found.store.resolve(TEMPLATE.descriptor, "won")
    assert override == found.result.best_override
    assert not Prompt(TEMPLATE).bind(Question("x")).render().applied
    assert found.rendered().skipped == ()

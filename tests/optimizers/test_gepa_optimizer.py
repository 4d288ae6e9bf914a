"""A run from the source to the winner, as the two models and the store see it."""

from __future__ import annotations

import attrs
import pytest

from optimizers.worlds import (
    NOTES,
    PROMPT,
    QUESTION,
    RULES,
    TEMPLATE,
    Question,
    Run,
    answer,
    config,
    instruction,
    judge,
    optimize,
    section,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaOptimizer,
    GepaRolloutCompleted,
    RolloutFeedback,
)
from promptgraft.errors import ConfigError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.entry import SkipReason
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runtime import Session, SessionProtocol
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.targets.part_kinds import SectionModule


def last_year(key: str) -> Prompt[object]:
    """Return the prompt as it was when one of its sections had another source."""
    then = MarkdownSection(title="Words", key=key, template="Words of last year:")
    return Prompt(PromptTemplate[object](ns="toy", key="words", sections=(then,)))


def test_improves_the_score_until_everything_is_perfect() -> None:
    result = optimize()
    assert result.baseline_pareto_mean == 0.0
    assert result.best_pareto_mean == 1.0
    assert result.found_better
    assert result.stop_reason is StopReason.PERFECT
    assert result.scores_matrix[result.best_index] == (1.0,) * 6
    assert result.scores_matrix[0] == (0.0,) * 6
    assert result.pareto_ids == ("e0", "e1", "e2", "e3", "e4", "e5")


def test_the_result_tells_where_each_candidate_comes_from() -> None:
    result = optimize()
    assert len(result.candidates) == result.accepted_mutations + 1
    assert result.ancestry[0] is None
    for position, (candidate, parent) in enumerate(
        zip(result.candidates[1:], result.ancestry[1:], strict=True), start=1
    ):
        assert parent is not None
        assert parent < position
        assert candidate.parents == (parent,)
        [module] = candidate.modules
        assert isinstance(module, SectionModule)
        changed = module.path
        elder = result.candidates[parent].section_bodies
        assert candidate.section_bodies[changed] != elder.get(changed)
        assert {**candidate.section_bodies, changed: ""} == {**elder, changed: ""}


def test_the_winner_is_rendered_under_its_tag_by_another_prompt_with_the_same_store() -> None:
    store = InMemoryPromptOverridesStore()
    result = optimize(overrides_store=store, overrides_tag="winner.v1")
    assert result.persisted

    rebuilt = attrs.evolve(TEMPLATE)
    rendered = Prompt(rebuilt, overrides_store=store, overrides_tag="winner.v1").bind(
        Question("w3")
    )
    best = result.best_section_overrides
    assert rendered.render().text == (
        f"## Rules\n\n{best[RULES]}\n\n## Question\n\nDo you know w3?\n\n## Notes\n\n{best[NOTES]}"
    )
    plain = Prompt(rebuilt, overrides_store=store).bind(Question("w3")).render()
    assert section(plain, RULES).text == "Known words:"


def test_each_rollout_of_a_candidate_receives_the_text_of_that_candidate() -> None:
    settings = config(training_examples=twins(4), pareto_set_size=4, minibatch_size=4)
    run = Run(settings, overrides_tag="other", overrides_store=InMemoryPromptOverridesStore())
    result = run.start()
    # Every batch has 4 rollouts: baseline, then parent, child, and validation when accepted.
    assert not result.rejections
    shown = [(section(r, RULES).text, section(r, NOTES).text) for r in run.task.requests]
    source = {RULES: "Known words:", NOTES: "More words:"}
    texts = [{**source, **candidate.section_bodies} for candidate in result.candidates]
    expected = [texts[0]] * 4
    for position in range(1, len(result.candidates)):
        parent = result.ancestry[position]
        assert parent is not None
        expected += [texts[parent]] * 4 + [texts[position]] * 8
    assert shown == [(text[RULES], text[NOTES]) for text in expected]


def test_parent_and_child_are_tried_on_one_minibatch_of_examples_to_learn_from() -> None:
    session = Session()
    result = optimize(session=session)
    batches: dict[str, list[str]] = {}
    for event in session.select_all(GepaRolloutCompleted):
        batches.setdefault(event.position.rpartition("/")[0], []).append(event.record.example_id)
    assert batches.pop("baseline") == list(result.pareto_ids)
    for position, ids in batches.items():
        if position.endswith("/pareto"):
            assert ids == list(result.pareto_ids)
            continue
        assert len(set(ids)) == 3
        assert all(name.endswith("-again") for name in ids)
        assert batches[position.replace("/child", "/parent")] == ids
    assert len({tuple(ids) for name, ids in batches.items() if name.endswith("/parent")}) > 3


def test_what_the_store_holds_already_is_part_of_the_baseline() -> None:
    store = InMemoryPromptOverridesStore()
    for path, body in ((RULES, "Known words: w0"), (QUESTION, "Well, do you know $word?")):
        store.set_section_override(PROMPT, path=path, body=body)
    run = Run(overrides_store=store)
    result = run.start()
    assert result.baseline_pareto_mean == pytest.approx(1 / 6)
    first = run.task.requests[0]
    assert section(first, RULES).text == "Known words: w0"
    assert section(first, QUESTION).text == "Well, do you know w0?"
    for request in run.task.requests:
        assert section(request, RULES).text.startswith("Known words: w0")
        assert section(request, QUESTION).text.startswith("Well, do you know")


def test_the_winner_keeps_other_overrides_and_stale_neighbours() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(last_year("notes"), tag="t", path=NOTES, body="More words: w0 w1")
    store.set_section_override(PROMPT, tag="t", path=QUESTION, body="Well, do you know $word?")
    before = store.resolve(PROMPT.descriptor, "t")
    assert before is not None

    result = optimize(
        config(target_section_paths=(RULES,)), overrides_store=store, overrides_tag="t"
    )

    assert result.found_better
    assert set(result.best_section_overrides) == {RULES}
    after = store.resolve(PROMPT.descriptor, "t")
    assert after is not None
    assert after.without(after.sections[RULES]) == before
    rendered = Prompt(TEMPLATE, overrides_store=store, overrides_tag="t").bind(Question("w1"))
    shown = rendered.render()
    assert section(shown, QUESTION).text == "Well, do you know w1?"
    assert section(shown, NOTES).text == "More words:"
    assert [(skip.part, skip.reason) for skip in shown.skipped] == [
        ("section notes", SkipReason.STALE)
    ]


def test_a_stale_override_of_a_target_is_no_part_of_the_baseline() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(last_year("rules"), path=RULES, body="Known words: w0 w1 w2")
    run = Run(overrides_store=store)
    result = run.start()
    assert result.baseline_pareto_mean == 0.0
    assert section(run.task.requests[0], RULES).text == "Known words:"
    assert result.best_section_overrides[RULES].startswith("Known words: ")
    after = Prompt(TEMPLATE, overrides_store=store).bind(Question("w0")).render()
    assert not after.skipped


def test_parameters_bound_to_the_prompt_hold_for_every_example() -> None:
    template = PromptTemplate[object](
        ns="toy",
        key="words",
        sections=(
            *TEMPLATE.sections,
            MarkdownSection(title="Tone", key="tone", template="Be $tone."),
        ),
    )
    run = Run(prompt=Prompt[object](template).bind({"tone": "kind"}))
    result = run.start()
    assert result.found_better
    assert {section(r, ("tone",)).text for r in run.task.requests} == {"Be kind."}


def test_without_a_reflection_adapter_the_task_adapter_reflects() -> None:
    def both(rendered: RenderedPrompt[object]) -> str:
        if rendered.ns == "promptgraft/gepa":
            return instruction("Known words: w0 w1 w2 w3 w4 w5")
        return answer(rendered)

    run = Run(config(target_section_paths=(RULES,)), task=both, reflection=None)
    result = run.start()
    assert result.best_pareto_mean == 1.0
    assert result.total_reflections == 1
    assert run.task.calls == result.total_rollouts + 1


def test_a_section_in_jinja_is_improved_without_becoming_a_template() -> None:
    template = PromptTemplate[object](
        ns="toy",
        key="words",
        sections=(
            MarkdownSection(title="Rules", key="rules", template="Known words:"),
            MarkdownSection(
                title="Question",
                key="question",
                syntax="jinja",
                template="{% if word %}Do you know {{ word }}?{% endif %}",
            ),
        ),
    )

    def knows(rendered: RenderedPrompt[object]) -> str:
        return "ok" if "{{ 6 * 7 }} {% for x in y %}" in rendered.text else "no"

    def propose_jinja(rendered: RenderedPrompt[object]) -> str:
        return instruction("{{ if_1 }} {{ 6 * 7 }} {% for x in y %} $word")

    run = Run(
        config(target_section_paths=(QUESTION,)),
        task=knows,
        reflection=propose_jinja,
        prompt=Prompt[object](template),
    )
    result = run.start()
    assert result.best_pareto_mean == 1.0
    assert section(run.task.requests[-1], QUESTION).text == (
        "Do you know w5? {{ 6 * 7 }} {% for x in y %} $word"
    )


def test_examples_may_be_shuffled_by_the_seed_before_they_are_split() -> None:
    plain = optimize(config(shuffle=False))
    shuffled = optimize(config(shuffle=True))
    again = optimize(config(shuffle=True))
    other = optimize(config(shuffle=True, seed=2))
    assert plain.pareto_ids == tuple(f"e{n}" for n in range(6))
    assert shuffled.pareto_ids == again.pareto_ids
    assert len({plain.pareto_ids, shuffled.pareto_ids, other.pareto_ids}) == 3


def test_nothing_leaks_from_one_rollout_to_the_next() -> None:
    sizes: list[int] = []

    def count(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        sizes.append(len(session.select_all(object)))
        session.dispatch("left behind")
        return judge(example, response, session)

    optimize(config(feedback_fn=count))
    # PromptRendered, ModelCalled, PromptExecuted, FeedbackStarted
    assert set(sizes) == {4}


def test_every_section_with_a_text_is_improved_where_no_part_is_named() -> None:
    frozen = MarkdownSection(title="Frozen", key="frozen", template="x", overridable=False)
    heading = MarkdownSection(title="Only a heading", key="heading")
    template = attrs.evolve(TEMPLATE, sections=(*TEMPLATE.sections, frozen, heading))
    named = (RULES, ("question",), NOTES)
    expected = optimize(config(target_section_paths=named), prompt=Prompt(template))
    assert optimize(config(target_section_paths=()), prompt=Prompt(template)) == expected
    only_frozen = Prompt(attrs.evolve(TEMPLATE, sections=(frozen, heading)))
    with pytest.raises(ConfigError, match=r"^target_section_paths: no section of `toy/words` has"):
        optimize(config(target_section_paths=()), prompt=only_frozen)


def test_a_prompt_without_an_adapter_is_refused_in_one_line() -> None:
    optimizer = GepaOptimizer(OptimizationContext(), config())
    with pytest.raises(ConfigError, match=r"^adapter: expected what answers the prompt, found No"):
        optimizer.plan(PROMPT)

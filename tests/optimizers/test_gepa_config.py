"""Settings that cannot work are refused before anything is paid for."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from typing import Any

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
    bound,
    config,
    examples,
    instruction,
    propose,
    twins,
)
from promptgraft.algorithms.gepa import GepaConfig, GepaExample
from promptgraft.errors import BindingError, CallerError, ConfigError, UnknownPartError
from promptgraft.ground.serde import shown
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.search import Guards, Limits, RejectionReason
from promptgraft.search.settings import Settings, groups_of

INTEGERS = {
    "minibatch_size": 1,
    "pareto_set_size": 1,
    "seed": 0,
    "max_example_chars": 100,
    "max_trace_chars": 100,
    "max_part_chars": 1,
    "max_failed_reflections": 1,
    "max_idle_steps": 1,
}
LIMITS = {"max_failed_reflections", "max_idle_steps"}
NO_NUMBERS = (math.nan, math.inf, -math.inf, True, "4", None)


def refused(message: str, **changes: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(**changes)


@pytest.mark.parametrize("name", INTEGERS)
def test_a_number_that_is_none_or_too_small_is_refused(name: str) -> None:
    least = INTEGERS[name]
    for value in (*NO_NUMBERS, 4.0, least - 1, -1):
        bounds = f"from {least} to" if name == "max_part_chars" else f"of at least {least}, found"
        group = {"max_part_chars": "guards."}.get(name, "limits." if name in LIMITS else "")
        refused(f"{group}{name}: expected an integer {bounds}", **{name: value})


def test_more_proposals_at_once_than_a_machine_has_threads_for_are_refused() -> None:
    assert config(proposals_per_step=1, steps_at_once=1_000).strategy.steps_at_once == 1_000
    message = (
        "strategy.steps_at_once: 501 steps of 2 proposals are 1002 proposals at once, expected at "
        "most 1000; lower one of them"
    )
    refused(message, proposals_per_step=2, steps_at_once=501)


def test_a_budget_that_does_not_pay_for_all_proposals_of_a_step_is_refused() -> None:
    refused(
        "raise it, or lower the number of validation cases (pareto_set_size in Python) "
        "or minibatch_size or strategy.proposals_per_step",
        proposals_per_step=900,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("perfect_score", "a finite number"),
        ("max_unscored_share", "a number from 0 to 1"),
    ],
)
@pytest.mark.parametrize("value", [*NO_NUMBERS, 10**400])
def test_a_share_or_a_score_that_is_no_finite_number_is_refused(
    name: str, expected: str, value: object
) -> None:
    refused(f"{name}: expected {expected}, found {shown(value)}", **{name: value})


def test_a_share_outside_0_to_1_is_refused() -> None:
    for value in (-0.1, 1.1):
        refused(
            f"limits.max_unscored_share: expected a number from 0 to 1, found {value}",
            max_unscored_share=value,
        )
    assert config(max_unscored_share=0).limits.max_unscored_share == 0
    assert config(max_unscored_share=1).limits.max_unscored_share == 1


def test_a_part_longer_than_stores_keep_is_refused() -> None:
    refused(
        f"guards.max_part_chars: expected an integer from 1 to {MAX_BODY_CHARS:,}, found ",
        max_part_chars=MAX_BODY_CHARS + 1,
    )
    assert config(max_part_chars=MAX_BODY_CHARS).guards.max_part_chars == MAX_BODY_CHARS


@pytest.mark.parametrize("name", ["feedback_fn", "example_formatter", "trace_formatter"])
def test_a_function_that_cannot_be_called_is_refused(name: str) -> None:
    refused(f"{name}: expected a function, found 'exact_match'", **{name: "exact_match"})


def test_a_missing_feedback_function_is_refused() -> None:
    refuses_to_start(
        Run(config(feedback_fn=None)),
        ConfigError,
        "feedback_fn: expected a function that scores an answer, found None",
    )


@pytest.mark.parametrize("name", ["persist", "shuffle"])
@pytest.mark.parametrize("value", ["no", 0, None])
def test_a_switch_that_is_neither_true_nor_false_is_refused(name: str, value: object) -> None:
    refused(f"{name}: expected true or false, found {value!r}", **{name: value})


def test_unknown_choices_are_refused() -> None:
    refused(
        "objectives.on_error: expected one of `unscored`, `zero`, found 'ignore'", on_error="ignore"
    )
    refused("persist_scope: expected a PersistenceScope, found 'global'", persist_scope="global")


def test_targets_that_are_no_paths_are_refused() -> None:
    for value in (None, "rules", 5):
        refused(
            f"target_section_paths: expected a tuple of section paths, found {value!r}",
            target_section_paths=value,
        )
    for path in ("rules", ["rules"], (1,)):
        refused(
            "target_section_paths[1]: expected a tuple of section keys such as "
            f"('policies', 'refunds'), found {path!r}",
            target_section_paths=(RULES, path),
        )


def test_a_target_that_is_named_twice_is_refused() -> None:
    refused(
        "target_section_paths: `rules` is named twice", target_section_paths=(RULES, NOTES, RULES)
    )


def test_examples_that_are_none_are_refused() -> None:
    for value in (None, "data.jsonl", 5):
        refused(
            f"training_examples: expected a sequence of GepaExample, found {value!r}",
            training_examples=value,
        )
    refused(
        "training_examples[2]: expected a GepaExample, found 'e2'",
        training_examples=(*examples(2), "e2"),
    )
    refused("leave none to learn from", training_examples=())


def test_examples_with_one_id_are_refused() -> None:
    refused(
        "training_examples: the id `e1` occurs twice",
        training_examples=(*examples(12), *examples(1, first=1)),
    )


def test_an_example_without_a_text_for_an_id_or_with_bare_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match="id: expected text, found 7"):
        GepaExample(id=7, params=())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"params: expected a tuple .* found Question\(word='x'"):
        GepaExample(id="x", params=Question("x"))  # type: ignore[arg-type]
    for params in ("word", {"word": "x"}):
        with pytest.raises(ConfigError, match="params: expected a tuple of parameters"):
            GepaExample(id="x", params=params)
    assert GepaExample(id="x", params=[Question("x")]).params == (Question("x"),)


@pytest.mark.parametrize("size", [12, 13, 99])
def test_a_pareto_set_that_leaves_nothing_to_learn_from_is_refused(size: int) -> None:
    refused(
        f"pareto_set_size: {size} of 12 examples leave none to learn from", pareto_set_size=size
    )


def test_a_budget_that_does_not_pay_for_one_step_is_refused() -> None:
    refused(
        "rollout_budget: expected at least 18 (your prompt takes 6 test calls, "
        "one step up to 12), found 17",
        rollout_budget=17,
    )
    run = Run(config(rollout_budget=18))
    result = run.start()
    assert result.steps == 1
    assert result.total_rollouts == run.task.calls == 18


def test_a_minibatch_is_never_larger_than_what_there_is_to_learn_from() -> None:
    settings = config(training_examples=twins(6)[:8], minibatch_size=99, rollout_budget=16)
    assert settings.batch_size == 2
    assert settings.step_size == 2 + 2 + 6
    refused(
        "rollout_budget: expected at least 16",
        training_examples=twins(6)[:8],
        minibatch_size=99,
        rollout_budget=15,
    )


def test_settings_may_not_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config().seed = 2  # type: ignore[misc]


def refuses_to_start(run: Run, error: type[CallerError], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        run.start()
    assert run.task.calls == run.reflection.calls == 0


def test_an_unknown_target_is_refused_with_a_list_of_what_exists() -> None:
    journal = MemoryJournal()
    refuses_to_start(
        Run(config(target_section_paths=(RULES, ("nots",))), journal=journal),
        UnknownPartError,
        "prompt `toy/words` has no section `nots` (did you mean `notes`?); overridable: "
        "`rules`, `question`, `notes`",
    )
    assert len(journal) == 0


def test_a_target_that_may_not_be_overridden_is_refused() -> None:
    fixed = attrs.evolve(TEMPLATE.sections[0], overridable=False)
    template = attrs.evolve(TEMPLATE, sections=(fixed, *TEMPLATE.sections[1:]))
    refuses_to_start(
        Run(prompt=Prompt[object](template)),
        UnknownPartError,
        "prompt `toy/words` does not allow overrides of section `rules`; overridable: "
        "`question`, `notes`",
    )


@pytest.mark.parametrize("others", [{}, {"target_section_paths": ()}])
def test_examples_that_no_section_could_hold_are_not_asked_for_in_vain(
    others: dict[str, object],
) -> None:
    refuses_to_start(
        Run(config(enable_example_generation=True, **others)),
        ConfigError,
        "enable_example_generation: the prompt has no section of task examples",
    )


def test_an_empty_path_is_refused() -> None:
    refused("target_section_paths[0]: expected a tuple of section keys", target_section_paths=((),))
    refuses_to_start(Run(config(target_section_paths=(("",),))), UnknownPartError, "has no section")


def test_a_part_may_get_twice_as_long_as_it_is_whatever_the_limit() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=NOTES, body=f"More words: {'n' * 9_000}")
    told: dict[str, set[int]] = {}

    def reply(rendered: RenderedPrompt[object]) -> str:
        [limit] = re.findall(r"Use at most (\d+) characters", rendered.text)
        told.setdefault(bound(rendered, "part"), set()).add(int(limit))
        return propose(rendered)

    run = Run(config(rollout_budget=300), reflection=reply, overrides_store=store)
    assert run.start().found_better
    assert told == {"section rules": {6_000}, "section notes": {2 * 9_012}}
    assert run.plan().warnings == Run(config(rollout_budget=300)).plan().warnings


def test_a_prompt_that_is_too_long_already_is_refused_with_its_length() -> None:
    longest = "w" * 50
    data = (*twins(6), GepaExample(id="long", params=(Question(longest),), label=longest))
    length = len(Prompt(TEMPLATE).bind(Question(longest)).render().text)
    for limit in (1, length - 1):
        refuses_to_start(
            Run(config(max_prompt_chars=limit, training_examples=data)),
            ConfigError,
            f"with example `{'e0' if limit == 1 else 'long'}` the prompt has ",
        )
    with pytest.raises(ConfigError) as caught:
        Run(config(max_prompt_chars=length - 1, training_examples=data)).plan()
    assert str(caught.value) == (
        f"guards.max_prompt_chars: with example `long` the prompt has {length} characters now, "
        f"more than the {length - 1} that it may have; raise the limit or shorten the source"
    )
    assert Run(config(max_prompt_chars=length, training_examples=data)).plan().rollouts == 200


@pytest.mark.parametrize(("length", "fits"), [(24, True), (25, False)])
def test_a_text_is_held_to_twice_what_is_in_force(length: int, fits: bool) -> None:
    run = Run(
        config(max_part_chars=10, target_section_paths=(RULES,), rollout_budget=40),
        reflection=lambda _: instruction("w0" + "x" * (length - 2)),
    )
    reasons = {one.reason for one in run.start().rejections}
    assert (RejectionReason.TOO_LONG not in reasons) == fits
    assert "Use at most 24 characters" in run.reflection.requests[0].text


def test_an_example_that_does_not_bind_is_refused_by_name() -> None:
    for params, problem in (
        ((), "section `question` needs a value for `$word`"),
        (("w9",), "expected attrs or dataclass instances, or mappings with string keys"),
        (({"wrd": "w9"},), "section `question` needs a value for `$word`"),
    ):
        odd = GepaExample(id="odd one", params=params)
        refuses_to_start(
            Run(config(training_examples=(*twins(6), odd))),
            BindingError,
            f"example `odd one`: {'bind: ' if params == ('w9',) else ''}{problem}",
        )


@pytest.mark.parametrize("written", ["{word}", "{{ word }}"])
def test_a_prompt_that_reads_nothing_of_its_examples_says_how_to_spell_it(written: str) -> None:
    rules, _, notes = TEMPLATE.sections
    question = MarkdownSection(title="Question", key="question", template=f"Know {written}?")
    template = attrs.evolve(TEMPLATE, sections=(rules, question, notes))
    refuses_to_start(
        Run(prompt=Prompt[object](template)),
        BindingError,
        f"example `e0`: the prompt has no placeholder `word`; section `question` has `{written}`, "
        "which is plain text; write `$word`",
    )


def test_an_example_that_does_not_render_is_refused_by_name() -> None:
    template = PromptTemplate[object](
        ns="toy",
        key="words",
        sections=(
            *TEMPLATE.sections,
            MarkdownSection(
                title="Length", key="length", syntax="jinja", template="{{ 12 // word|length }}"
            ),
        ),
    )
    empty = GepaExample(id="empty word", params=(Question(""),))
    refuses_to_start(
        Run(config(training_examples=(*twins(6), empty)), prompt=Prompt[object](template)),
        BindingError,
        "example `empty word`: section `length`",
    )


def test_what_is_wrong_is_found_before_the_journal_is_bound() -> None:
    journal = MemoryJournal()
    wrong = Run(config(target_section_paths=(("nots",),)), journal=journal)
    with pytest.raises(UnknownPartError):
        wrong.start()
    right = Run(config(target_section_paths=(QUESTION, RULES, NOTES)), journal=journal)
    assert right.start().total_rollouts > 0


# Groups


def test_a_settings_class_has_few_enough_fields_to_be_read() -> None:
    assert len(attrs.fields(GepaConfig)) <= 28
    for group in groups_of(GepaConfig).values():
        assert len(attrs.fields(group)) <= 20


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (GepaConfig, "max_costs", "`max_costs`; did you mean `limits.max_cost`?"),
        (GepaConfig, "weight", "`weight`; did you mean `objectives.weights`?"),
        (GepaConfig, "sed", "GepaConfig: there is no setting `sed`; did you mean `seed`?"),
        (
            Limits,
            "max_calls",
            "Limits: there is no setting `max_calls`; there are `max_cost`, `max_tokens`, ",
        ),
        (Limits, "tokens", "Limits: there is no setting `tokens`; did you mean `max_tokens`?"),
        (
            Guards,
            "xyz",
            "`xyz`; there are `max_part_chars`, `max_prompt_chars`, ",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_what_exists(
    kind: type[Settings], name: str, message: str
) -> None:
    make: Callable[..., Settings] = kind
    with pytest.raises(ConfigError, match=re.escape(message)):
        make(**{name: 1})


@pytest.mark.parametrize("name", sorted(groups_of(GepaConfig)))
def test_a_group_that_is_something_else_is_refused(name: str) -> None:
    kind = groups_of(GepaConfig)[name].__name__
    change: Callable[..., GepaConfig] = attrs.evolve
    with pytest.raises(ConfigError, match=f"^{name}: expected (a|an) {kind}, found 'paper'"):
        change(config(), **{name: "paper"})


def test_a_group_that_is_a_mapping_says_how_to_write_it() -> None:
    change: Callable[..., GepaConfig] = attrs.evolve
    with pytest.raises(ConfigError) as caught:
        change(config(), limits={"max_cost": 1})
    assert str(caught.value) == (
        "limits: expected a Limits, found {'max_cost': 1}; write `Limits(NAME=VALUE)`"
    )


def test_what_is_given_is_copied_so_that_settings_never_change() -> None:
    data, tools, weights = list(twins(6)), ["search"], {"score": 1.0}
    settings = config(training_examples=data, tools=tools, weights=weights)
    data.clear()
    tools.append("other")
    weights["tokens"] = 2.0
    assert settings.training_examples == twins(6)
    assert settings.targets.tools == ("search",)
    assert settings.objectives.weights == {"score": 1.0}


def test_groups_of_settings_can_be_compared_and_travel() -> None:
    settings = config(weights={"score": 1.0}, max_cost="0.10", preset="lean")
    again = pickle.loads(pickle.dumps(attrs.evolve(settings, seed=1)))
    assert again == settings
    assert attrs.evolve(settings, limits=Limits()) != settings

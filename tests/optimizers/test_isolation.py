"""No rollout sees what another one has changed: parameters, labels, what is bound for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from optimizers.worlds import (
    PROMPT,
    TEMPLATE,
    Run,
    answer,
    config,
    examples,
    judge,
    optimize,
    propose,
)
from promptgraft import (
    Case,
    GepaExample,
    OptimizationContext,
    Prompt,
    PromptResponse,
    RolloutFeedback,
    ScriptedAdapter,
    Texts,
    evaluate,
)
from promptgraft.algorithms.gepa import GepaOptimizer
from promptgraft.errors import ConfigError
from promptgraft.evals.metrics import Python
from promptgraft.prompt import MarkdownSection, PromptTemplate
from promptgraft.runtime import SessionProtocol


@attrs.define
class Basket:
    """A parameter that can be changed."""

    word: str
    seen: list[str] = attrs.field(factory=list)


@attrs.frozen
class Turn:
    """Tells examples about the same word apart."""

    turn: int


@attrs.frozen
class Wrapped:
    """A parameter that cannot be changed itself, but holds one that can."""

    basket: Basket

    @property
    def word(self) -> str:
        return self.basket.word


def twelve(param: Callable[[str], object]) -> tuple[GepaExample, ...]:
    return tuple(
        GepaExample(
            id=f"e{n}", params=(param(f"w{n % 6}"), Turn(n)), label={"words": [f"w{n % 6}"]}
        )
        for n in range(12)
    )


def judge_and_spoil(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Judge like the world of words does, and use up label and parameter on the way."""
    label: Any = example.label
    word = label["words"].pop()
    param: Any = example.params[0]
    basket = param.basket if isinstance(param, Wrapped) else param
    assert basket.seen == []
    basket.seen.append(word)
    basket.word = "spoiled"
    return judge(attrs.evolve(example, label=word), response, session)


def test_labels_and_parameters_that_a_feedback_function_changes_are_whole_again() -> None:
    data = twelve(Basket)
    result = optimize(config(training_examples=data, feedback_fn=judge_and_spoil))
    untouched = optimize(config(training_examples=_plain(data)))
    assert result.found_better
    assert result.best_section_overrides == untouched.best_section_overrides
    assert data == twelve(Basket)


def _plain(data: tuple[GepaExample, ...]) -> tuple[GepaExample, ...]:
    labels: list[Any] = [example.label for example in data]
    return tuple(
        attrs.evolve(example, label=label["words"][0])
        for example, label in zip(data, labels, strict=True)
    )


def test_what_a_frozen_parameter_holds_is_copied_too() -> None:
    template = PromptTemplate[object](ns=TEMPLATE.ns, key=TEMPLATE.key, sections=_reading("basket"))
    data = twelve(lambda word: Wrapped(Basket(word)))
    settings = config(training_examples=data, feedback_fn=judge_and_spoil)
    result = optimize(settings, prompt=Prompt(template), task=lambda rendered: "no")
    assert result.best_pareto_mean == 0.0
    assert data == twelve(lambda word: Wrapped(Basket(word)))


def _reading(name: str) -> list[MarkdownSection]:
    return [
        attrs.evolve(section, template=f"Do you know {{{{ {name}.word }}}}?", syntax="jinja")
        if section.key == "question"
        else section
        for section in TEMPLATE.sections
    ]


def test_what_somebody_holds_who_made_the_examples_changes_no_rollout() -> None:
    held = [Basket(f"w{n % 6}") for n in range(12)]
    data = [
        GepaExample(id=f"e{n}", params=(basket, Turn(n)), label=basket.word)
        for n, basket in enumerate(held)
    ]

    def spoil(rendered: Any) -> str:
        for basket in held:
            basket.word = "spoiled"
        return answer(rendered)

    assert optimize(config(training_examples=data), task=spoil).found_better


def test_a_function_that_changes_what_it_is_given_gives_the_same_scores_again() -> None:
    def known(texts: Mapping[str, str], words: list[str], _: int) -> str:
        return "ok" if words.pop() in texts["rules"].split() else "no"

    texts = Texts({"rules": "Known words:"}, run=known)
    data = [
        GepaExample(id=f"e{n}", params=([f"w{n % 6}"], n), label=f"w{n % 6}") for n in range(12)
    ]
    settings = config(training_examples=data, target_section_paths=())
    context = OptimizationContext(reflection_adapter=ScriptedAdapter(propose))
    result = GepaOptimizer(context, settings).optimize(texts)
    assert result.found_better
    assert [example.params for example in data] == [([f"w{n % 6}"], n) for n in range(12)]


def test_what_is_bound_for_every_example_is_copied_too() -> None:
    @attrs.define
    class Shared:
        notes: list[str]

    def shared(values: Mapping[str, Any]) -> bool:
        values["notes"].append("seen")
        return len(values["notes"]) == 1

    rules = attrs.evolve(TEMPLATE.sections[0], enabled=shared)
    template = attrs.evolve(TEMPLATE, sections=(rules, *TEMPLATE.sections[1:]))
    bound = Shared([])
    run = Run(prompt=Prompt(template).bind(bound))
    run.start()
    assert {len(request.sections) for request in run.task.requests} == {3}
    assert bound == Shared([])


@pytest.mark.parametrize("held", ["label", "params", "bound"])
def test_what_cannot_be_copied_is_refused_before_the_first_call(held: str) -> None:
    first, *rest = examples(12)
    lock = threading.Lock()
    prompt = PROMPT
    where = "example `e0`: params and label"
    if held == "label":
        first = attrs.evolve(first, label=lock)
    elif held == "params":
        first = attrs.evolve(first, params=(*first.params, {"lock": lock}))
    else:
        prompt, where = PROMPT.bind({"lock": lock}), "prompt `toy/words`: bound parameters"

    def unasked(rendered: object) -> str:
        raise AssertionError(rendered)

    with pytest.raises(ConfigError) as caught:
        optimize(config(training_examples=[first, *rest]), prompt=prompt, task=unasked)
    assert str(caught.value) == (
        f"{where}: every use needs a copy, and copying raised TypeError: cannot pickle "
        "'_thread.lock' object; use plain data or give the class a `__deepcopy__`"
    )


def test_every_attempt_of_an_evaluation_has_the_case_as_it_was() -> None:
    section = MarkdownSection(title="Q", key="q", template="Say: $word")
    prompt = Prompt(PromptTemplate[object](ns="toy", key="echo", sections=(section,)))
    case = Case(id="a", input={"word": "hi"}, expected={"words": ["hi"]})

    def pops(case: Case, answer: Any) -> float:
        expected: Any = case.expected
        return 1.0 if expected["words"].pop() in answer.text else 0.0

    found = evaluate(
        prompt, [case], [Python(function=pops)], adapter=ScriptedAdapter(lambda _: "hi"), num_runs=3
    )
    assert [run.mean_score for run in found.runs] == [1.0] * 3
    assert case.expected == {"words": ["hi"]}

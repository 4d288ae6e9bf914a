"""A search of the user's that is wrong: the error names the algorithm, and the mend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs
import pytest

from optimizers.worlds import PROMPT, RULES, answer, examples, judge
from promptgraft import GepaExample, OptimizationContext, ScriptedAdapter
from promptgraft.errors import CallerError, DataFormatError, JournalError, PromptgraftError
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import EventBus
from promptgraft.search import (
    Asking,
    BaseSearch,
    Join,
    Kit,
    Optimizer,
    Rollouts,
    RunConfig,
    RunResult,
    Start,
    StopReason,
)

Part = Callable[[BaseSearch], Asking[object]]


class Search(BaseSearch):
    """Evaluates the baseline, then does what a test wants."""

    def __init__(self, kit: Kit, then: Part) -> None:
        super().__init__(kit)
        self.then = then

    def run(self) -> Asking[None]:
        yield from super().run()
        yield from self.then(self)


@attrs.frozen(kw_only=True)
class Trial(RunConfig):
    algorithm: ClassVar[str] = "trial"
    then: Part

    @property
    def decisive(self) -> Mapping[str, Json]:
        return {}

    def search(self, kit: Kit) -> BaseSearch:
        return Search(kit, self.then)


class Lost(Search):
    """Evaluates no baseline."""

    def run(self) -> Asking[None]:
        yield from self.then(self)


@attrs.frozen(kw_only=True)
class Hasty(Trial):
    def search(self, kit: Kit) -> BaseSearch:
        return Lost(kit, self.then)


@attrs.frozen(kw_only=True)
class Bare(Trial):
    decisive = RunConfig.decisive


@attrs.frozen(kw_only=True)
class Nothing(Trial):
    def search(self, kit: Kit) -> Any:
        return None


def run(then: Part, settings: type[Trial] = Trial) -> RunResult:
    context = OptimizationContext(
        ScriptedAdapter(answer), journal=MemoryJournal(), event_bus=EventBus()
    )
    config = settings(
        rollout_budget=40,
        pareto_set_size=3,
        target_section_paths=(RULES,),
        training_examples=examples(6),
        feedback_fn=judge,
        then=then,
    )
    return Optimizer(context, config).optimize(PROMPT)


def rollouts(search: BaseSearch, position: str) -> Asking[object]:
    kit = search.kit
    return (
        yield from Rollouts(
            position=position, candidate=kit.target.baseline(), examples=kit.training
        )
    )


def children(search: BaseSearch, *proposals: int) -> Asking[None]:
    kit, [module] = search.kit, search.kit.target.modules
    for text, proposal in zip(("One.", "Two."), proposals, strict=True):
        parent = search.population.pool.candidates[0]
        child = kit.target.graft(parent, module, text, parents=(0,), examples=kit.validation)
        yield from search.validate(child, step=1, proposal=proposal)


def broken(search: BaseSearch) -> Asking[object]:
    yield from rollouts(search, "step/1/parent")
    raise LookupError("no such text")


def in_a_branch(search: BaseSearch) -> Asking[object]:
    return (yield from Join((yield from Start(broken(search)))))


def foreign(search: BaseSearch) -> Asking[object]:
    return (
        yield from Rollouts(
            position="step/1/parent",
            candidate=search.kit.target.baseline(),
            examples=[GepaExample(id="of another run", params=())],
        )
    )


@pytest.mark.parametrize("then", [broken, in_a_branch])
def test_what_a_search_raises_names_algorithm_and_line(then: Part) -> None:
    message = r"^algorithm `trial` raised LookupError: no such text \(.*test_own_search.py:\d+\)$"
    with pytest.raises(CallerError, match=message) as caught:
        run(then)
    assert isinstance(caught.value.__cause__, LookupError)
    found = caught.value.result
    assert isinstance(found, RunResult)
    assert (found.stop_reason, len(found.candidates)) == (StopReason.FAILED, 1)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (foreign, r"the run has no example 'of another run', .* at `step/1/parent`"),
        (
            lambda search: rollouts(search, "mine/1"),
            r"expected a place in a run, such as `step/3/child`, found 'mine/1'",
        ),
    ],
)
def test_what_a_search_asks_wrongly_is_named_before_a_call(then: Part, message: str) -> None:
    with pytest.raises(PromptgraftError, match=message) as caught:
        run(then)
    assert isinstance(caught.value.result, RunResult)
    assert caught.value.result.total_rollouts == 3


def test_settings_that_make_no_search_are_named() -> None:
    with pytest.raises(CallerError, match=r"`trial`: `search` returned None; expected a BaseSea"):
        run(broken, Nothing)


def test_a_search_without_its_baseline_says_how_it_begins() -> None:
    with pytest.raises(CallerError, match=r"^Lost.run: expected the baseline .*; begin with"):
        run(lambda search: rollouts(search, "step/1/parent"), Hasty)


def test_a_setting_without_a_plain_form_is_named() -> None:
    with pytest.raises(
        DataFormatError, match=r"^then: expected plain data, .*found <function broken"
    ):
        run(broken, Bare)


def test_candidates_of_one_step_are_told_apart_by_their_proposal() -> None:
    found = run(lambda search: children(search, 1, 2))
    assert len(found.candidates) == 3
    with pytest.raises(JournalError, match=r"`step/1/pareto/0`.*`trial` asks for two things ther"):
        run(lambda search: children(search, 0, 0))


@attrs.frozen(kw_only=True)
class Stubborn(Trial):
    """Calls its latest candidate the best one, as a race that was stopped may do."""

    def search(self, kit: Kit) -> BaseSearch:
        class Latest(Search):
            @property
            def best(self) -> int:
                return len(self.population.pool.candidates) - 1

        found = Latest(kit, self.then)
        found.population.pool.ranks = False
        return found


def test_a_leader_that_does_not_beat_the_baseline_is_no_winner() -> None:
    found = run(lambda search: children(search, 1, 2), Stubborn)
    assert len(found.candidates) == 3
    assert (found.best_index, found.improved) == (0, False)
    assert found.best_pareto_mean == found.baseline_pareto_mean

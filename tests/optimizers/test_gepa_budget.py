"""Every call is counted, and there is never one too many."""

from __future__ import annotations

import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from resume_world import paid, run

from further import thorough
from optimizers.worlds import PROMPT, Run, config, instruction, twins
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaConfig, GepaExample, GepaResult, RolloutFeedback
from promptgraft.errors import (
    CandidateError,
    ConfigError,
    OutputError,
    PermanentProviderError,
    TransientProviderError,
)
from promptgraft.evals.spending import Role
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.search import StopReason

SCORES = (0.0, 0.0, 0.25, 0.5, 0.5, 1.0, 1.0, -3.5, -1e300)
REPLIES = (
    "",
    "no block",
    "```instruction\nnever closed",
    instruction(""),
    instruction("$unknown"),
    instruction("x" * 400),
    instruction("a\x00b"),
    "```\na\n```\n```\nb\n```",
)
ENDED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}


@attrs.frozen(kw_only=True)
class World:
    """Models and judges that do something else at every call, as ``salt`` decides."""

    salt: int
    trouble: float
    refusals: float
    spare: int
    minibatch: int
    pareto: int
    learning: int
    share: float
    zero: bool
    modules: int
    patience: int
    preset: str
    proposals: int = 1
    at_once: int = 1
    blame: str = ""
    reflections: int | None = None
    critical: int = 0
    shuffle: bool = False

    @property
    def least(self) -> int:
        return 2 * self.pareto + 2 * self.proposals * min(self.minibatch, self.learning)

    @property
    def budget(self) -> int:
        return self.least + self.spare

    def settings(self, **changes: object) -> GepaConfig:
        return config(
            **{
                "rollout_budget": self.budget,
                "minibatch_size": self.minibatch,
                "pareto_set_size": self.pareto,
                "training_examples": self.examples,
                "shuffle": self.shuffle,
                "max_reflections": self.reflections,
                "feedback_fn": self.judge,
                "seed": self.salt,
                "preset": self.preset,
                "proposals_per_step": self.proposals,
                "steps_at_once": self.at_once,
                "on_error": "zero" if self.zero else "unscored",
                "max_unscored_share": self.share,
                "max_failed_reflections": self.patience,
                "max_idle_steps": self.patience,
                "max_part_chars": 300,
                "target_section_paths": (("rules",), ("notes",))[: self.modules],
            }
            | changes
        )

    @property
    def examples(self) -> tuple[GepaExample, ...]:
        data = twins(6)[: self.pareto + self.learning]
        marked = set(
            self.chance("critical").sample(range(len(data)), min(self.critical, len(data)))
        )
        return tuple(attrs.evolve(one, critical=at in marked) for at, one in enumerate(data))

    def chance(self, *place: object) -> random.Random:
        return random.Random(f"{self.salt}/{place}")

    def judge(
        self, example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(
            score=self.chance(example.id, response.text).choice(SCORES),
            feedback=f"so so {self.blame}",
        )

    def answer(self, rendered: RenderedPrompt[object]) -> str:
        chance = self.chance("task", rendered.text)
        if chance.random() < self.refusals:
            raise PermanentProviderError("refused")
        if chance.random() < self.trouble:
            kinds: list[Exception] = [TransientProviderError("429"), OutputError("odd")]
            raise chance.choice(kinds)
        return rendered.text

    def reply(self, rendered: RenderedPrompt[object]) -> str:
        chance = self.chance("reflection", rendered.text)
        if chance.random() < self.refusals / 2:
            raise PermanentProviderError("refused")
        if chance.random() < self.trouble:
            kinds: list[Exception] = [TransientProviderError("503"), CandidateError("odd")]
            raise chance.choice(kinds)
        if chance.random() < 0.3:
            return chance.choice(REPLIES)
        return instruction(f"text {chance.randrange(60)}")

    def run(self, **surroundings: Any) -> Run:
        return Run(
            self.settings(), task=self.answer, reflection=self.reply, prompt=PROMPT, **surroundings
        )


worlds = st.builds(
    World,
    salt=st.integers(0, 2**32),
    trouble=st.sampled_from((0.0, 0.05, 0.1, 0.3, 0.9)),
    refusals=st.just(0.0),
    spare=st.integers(-2, 150),
    minibatch=st.integers(1, 8),
    pareto=st.integers(1, 6),
    learning=st.integers(1, 6),
    share=st.sampled_from((0.3, 0.5, 1.0)),
    zero=st.booleans(),
    preset=st.sampled_from(("paper", "lean")),
    proposals=st.sampled_from((1, 1, 2, 3, 8)),
    at_once=st.sampled_from((1, 1, 2, 3)),
    modules=st.integers(1, 2),
    patience=st.integers(1, 6),
    blame=st.sampled_from(("", "notes", "rules, notes")),
    reflections=st.sampled_from((None, None, 1, 2, 5)),
    critical=st.sampled_from((0, 0, 2, 5)),
    shuffle=st.booleans(),
)


def can_run(world: World) -> bool:
    """Tell whether the budget pays for baseline and one step; if not, see that it is refused."""
    if world.spare >= 0:
        return True
    with pytest.raises(ConfigError, match=f"rollout_budget: expected at least {world.least} "):
        world.settings()
    return False


USED = ("total_rollouts", "unscored_rollouts", "total_reflections", "ledger")

FAULT_IN_THE_FINALS = World(
    salt=18,
    trouble=0.1,
    refusals=0.0,
    spare=0,
    minibatch=1,
    pareto=6,
    learning=1,
    share=0.3,
    zero=False,
    modules=1,
    patience=1,
    preset="lean",
    blame="",
    reflections=None,
    critical=0,
    shuffle=False,
)


GROWN_MINIBATCHES = attrs.evolve(
    FAULT_IN_THE_FINALS,
    salt=0,
    trouble=0.0,
    spare=148,
    pareto=3,
    learning=3,
    patience=2,
    proposals=8,
    at_once=3,
)


@given(worlds)
@example(FAULT_IN_THE_FINALS)
@settings(max_examples=12, deadline=None)
def test_calls_never_exceed_the_budget_and_are_counted_exactly(world: World) -> None:
    if not can_run(world):
        return
    journal = MemoryJournal()
    run = world.run(journal=journal)
    result = run.start()
    event(f"stopped: {result.stop_reason}, faults: {bool(result.unscored_rollouts)}")

    assert run.task.calls == result.total_rollouts <= world.budget
    settings, begun = world.settings(), world.proposals * (result.steps + world.at_once - 1)
    most = settings.reflections_per_proposal * begun
    assert run.reflection.calls == result.total_reflections <= most
    assert result.total_reflections <= run.plan().reflections
    joined = len(result.candidates) - 1
    assert joined <= result.accepted_mutations <= world.proposals * joined
    if result.stop_reason not in ENDED_BY_FAULTS and not result.unscored_rollouts:
        # What is kept for the end pays for both in full.
        assert None not in result.scores_matrix[0]
        assert None not in result.scores_matrix[result.best_index]

    again = world.run(journal=journal)
    if result.stop_reason not in ENDED_BY_FAULTS:
        assert again.start() == result
        assert again.task.calls == again.reflection.calls == 0
    elif result.stop_reason is StopReason.PROVIDER_FAILED:
        resumed = again.start()  # nothing has changed: the same calls fail the same way
        assert attrs.evolve(resumed, ledger=result.ledger) == result
        assert calls_of(resumed) == calls_of(result) + again.task.calls
        assert 0 < again.task.calls == result.unscored_rollouts - recorded_faults(journal)


@given(worlds.map(lambda world: attrs.evolve(world, reflections=None)))
@example(GROWN_MINIBATCHES)
@settings(max_examples=8, deadline=None)
def test_a_budget_is_used_up_only_when_the_next_step_may_need_more(world: World) -> None:
    if not can_run(world):
        return
    journal = MemoryJournal()
    result = world.run(journal=journal).start()
    if result.stop_reason is not StopReason.BUDGET:
        return
    figures = re.match(
        r"one more step may take (\d+) test calls, and (\d+) of (\d+) are left for steps"
        r"(?:; (\d+) were kept for the tests after the search)?$",
        result.stop_detail,
    )
    assert figures
    needed, left, whole, kept = (int(figure or 0) for figure in figures.groups())
    assert left < needed
    assert whole == world.budget
    assert kept <= world.settings().reserved_size
    # So it leaves less than that step and the tests after the search may take.
    assert world.budget - result.total_rollouts <= left + kept

    # A larger budget pays for that step, and shows what it takes.
    larger = attrs.evolve(world, spare=world.spare + 4 * needed)
    later = larger.run(journal=journal, reuse_scores=True).start()
    if later.steps == result.steps:
        return
    trial = most_of_trials(journal, step=result.steps + 1, proposals=world.proposals)
    event(f"compared: {trial is not None}")
    if trial is not None:
        # The best one may lack as much as a race takes.
        raced = world.pareto * (2 if world.preset == "lean" else 1)
        assert needed <= trial + raced


def most_of_trials(journal: MemoryJournal, *, step: int, proposals: int) -> int | None:
    """Return most rollouts that a step takes on minibatches; None if it has tried no child."""
    places = (record.key.split("/") for record in journal.records())
    rollouts = Counter(tuple(place[2:-1]) for place in places if place[:2] == ["step", str(step)])
    attempts = [(str(number),) for number in range(1, proposals + 1)] if proposals > 1 else [()]
    # Parents are not evaluated again where their rollouts are reused.
    parents = sum(rollouts[*attempt, "parent"] for attempt in attempts)
    minibatch = max(rollouts[*attempt, "child"] for attempt in attempts)
    return parents + proposals * minibatch if minibatch else None


def calls_of(result: GepaResult) -> int:
    return sum(entry.calls for entry in result.ledger if entry.role is Role.TASK)


def recorded_faults(journal: MemoryJournal) -> int:
    return sum(
        record.kind == "fault" and "/reflect/" not in record.key for record in journal.records()
    )


@given(worlds.map(lambda world: attrs.evolve(world, refusals=0.02)))
@settings(max_examples=10, deadline=None)
def test_a_call_that_is_refused_for_good_is_the_last_and_is_no_rollout(world: World) -> None:
    if not can_run(world):
        return
    run = world.run()
    result = run.start()
    refused_task = run.task.calls - result.total_rollouts
    refused_reflection = run.reflection.calls - result.total_reflections
    assert run.task.calls <= world.budget
    # A race does not know of the step that was begun beside it, and may be refused, too.
    assert refused_task + refused_reflection <= (1 if world.at_once == 1 else 2)
    assert min(refused_task, refused_reflection) >= 0
    if refused_task or refused_reflection:
        assert result.stop_reason is StopReason.PROVIDER_FAILED
        assert result.stop_detail == "refused"


@given(worlds, st.integers(1, 60))
@settings(max_examples=6, deadline=None)
def test_a_larger_budget_goes_on_where_the_smaller_one_ended(world: World, more: int) -> None:
    if not can_run(world):
        return
    journal = MemoryJournal()
    first = world.run(journal=journal).start()
    if first.stop_reason in ENDED_BY_FAULTS:
        return
    larger = attrs.evolve(world, spare=world.spare + more)
    # The object that judges holds the budget too, so it is another one.
    resumed = larger.run(journal=journal, reuse_scores=True)
    uninterrupted = larger.run()
    result = uninterrupted.start()
    assert attrs.evolve(resumed.start(), run_id=result.run_id) == result
    new = uninterrupted.task.calls - first.total_rollouts
    # The smaller one may have tried its finalists on what the larger one had no need of.
    assert resumed.task.calls >= new
    assert resumed.task.calls == new or world.preset == "lean"
    assert resumed.reflection.calls == uninterrupted.reflection.calls - first.total_reflections


@given(worlds)
@settings(max_examples=6, deadline=None)
def test_calls_side_by_side_are_counted_as_exactly(world: World) -> None:
    if not can_run(world):
        return
    with ThreadPoolExecutor(4) as executor:
        run = world.run(executor=executor)
        result = run.start()
    assert run.task.calls == result.total_rollouts <= world.budget
    alone = world.run().start()
    if world.proposals * world.at_once > 1 and result.stop_reason is StopReason.PROVIDER_FAILED:
        # How far those had come that were given up depends on the time; what they used counts.
        used = {name: getattr(alone, name) for name in USED}
        result = attrs.evolve(result, **used)
    assert result == alone


@pytest.mark.parametrize("budget", [16, 91, *thorough([23, 58, 127])])
def test_mutations_of_every_kind_and_merges_are_paid_from_the_budget(
    tmp_path: Path, budget: int
) -> None:
    result = run(tmp_path, budget=budget)
    assert result.stop_reason is StopReason.BUDGET
    assert budget - 10 < result.total_rollouts <= budget
    assert paid(tmp_path) == result.total_rollouts + result.total_reflections

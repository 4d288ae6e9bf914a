"""Racing on the validation set, and the other parts of the lean strategy."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from further import thorough
from optimizers.worlds import (
    NOTES,
    RULES,
    Run,
    about,
    answer,
    asked,
    config,
    examples,
    failing,
    instruction,
    note,
    numbered,
    optimize,
    propose,
    scored,
    section,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaConfig,
    GepaExample,
    GepaMutationAccepted,
    GepaMutationRejected,
    GepaRolloutCompleted,
    RolloutFeedback,
)
from promptgraft.algorithms.gepa.additions.blame import Names, blamed, blamed_modules, names_of
from promptgraft.algorithms.gepa.select import Draws, Minibatches, TrainingRollouts, Turn, Turns
from promptgraft.algorithms.gepa.settings import PRESETS, Strategy
from promptgraft.errors import ConfigError, TransientProviderError
from promptgraft.ground.serde import digest_text
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Cancellation, Session, SessionProtocol
from promptgraft.search import StopReason
from promptgraft.search.scores import Scorer, is_behind
from promptgraft.search.stopping import MaxProposals, RequiredObjectives, TargetScore
from promptgraft.search.validation import Full, Racing
from promptgraft.targets.part_kinds import (
    SectionModule,
    TaskExampleModule,
    ToolModule,
)
from promptgraft.targets.types import Candidate, Module, ModuleDescription, RolloutRecord
from targets.test_own_target import Forecast

BASELINE = Candidate(changes={}, digest=digest_text("baseline"))
WRONG = RolloutFeedback(score=0.0, feedback="no")


def lean(**changes: Any) -> GepaConfig:
    """Return a lean search; 20 examples to compare on, and 20 about the same words."""
    sizes: dict[str, Any] = {"training_examples": twins(20), "pareto_set_size": 20}
    return config(**({"preset": "lean", "rollout_budget": 400} | sizes | changes))


def tried_on(session: Session, phase: str) -> Counter[str]:
    """Count the rollouts of the positions that begin so, by candidate's place in the run."""
    positions = [event.position for event in session.select_all(GepaRolloutCompleted)]
    return Counter(
        "/".join(position.split("/")[:3]) for position in positions if re.match(phase, position)
    )


def test_a_preset_sets_what_is_not_given() -> None:
    paper, quick = config(preset="paper"), config(preset="lean", exploration=0.5)
    assert Strategy().preset == "lean"
    assert (paper.validation, quick.validation) == (Full(), Racing())
    assert (paper.strategy.exploration, quick.strategy.exploration) == (1.0, 0.5)
    assert (paper.strategy.reuse_rollouts, quick.strategy.reuse_rollouts) == (False, True)
    assert (paper.strategy.minibatches, quick.strategy.minibatches) == ("epochs", "teaching")
    assert [one.name for one in quick.used_additions] == ["blame", "shorten"]
    assert PRESETS["paper"]["additions"] == ()


@pytest.mark.parametrize("setting", [{"pick": {"score": 1}}, {"frontier_type": "objective"}])
def test_settings_that_need_every_mean_have_every_candidate_tried_on_everything(
    setting: dict[str, str],
) -> None:
    assert config(preset="lean", **setting).validation == Full()
    assert config(preset="lean", frontier_type="cartesian").validation == Racing()


def test_a_race_gets_as_far_with_fewer_rollouts() -> None:
    def rollouts_until_six_words_are_known(preset: str) -> int:
        session = Session()
        sizes = {"training_examples": twins(60), "pareto_set_size": 60, "rollout_budget": 900}
        assert optimize(lean(preset=preset, **sizes), session=session).found_better
        added = session.select_all(GepaCandidateAdded)
        return next(event.rollouts for event in added if _words(event) >= 6)

    slow = rollouts_until_six_words_are_known("paper")
    assert rollouts_until_six_words_are_known("lean") < 0.7 * slow


def _words(event: GepaCandidateAdded) -> int:
    return sum(len(re.findall(r"w\d+", text)) for text in event.texts.values())


def test_only_a_child_of_the_best_one_wins_a_tie() -> None:
    session = Session()
    optimize(lean(training_examples=twins(60), pareto_set_size=60), session=session)
    added = session.select_all(GepaCandidateAdded)
    known = [_words(event) for event in added]
    crowned = [event for event in added if event.best == event.candidate]
    assert any(event.best != event.candidate for event in added)
    # Whoever takes over knows what the one before knew: nothing that was learned is lost by luck.
    for before, after in pairwise(crowned):
        assert known[after.candidate] >= known[before.candidate]


def test_who_falls_behind_is_tried_on_no_more_examples() -> None:
    def forgets(rendered: RenderedPrompt[object]) -> str:
        """Know each of the words w50 to w61 but w50, until anything else is learned."""
        if int(asked(rendered)[1:]) < 50:
            return answer(rendered)
        learned = re.search(r"w\d", section(rendered, RULES).text)
        return "no" if learned or asked(rendered) == "w50" else "ok"

    session = Session()
    data = (*examples(12, first=50), *examples(12))
    result = optimize(
        lean(
            training_examples=data,
            pareto_set_size=12,
            target_section_paths=(RULES,),
            validation=Racing(first=3, every=2),
            rollout_budget=200,
        ),
        task=forgets,
        session=session,
    )
    assert not result.found_better
    raced = tried_on(session, r"step/\d+/pareto/(first|rest)")
    assert len(raced) > 5
    assert set(raced.values()) == {3}


@pytest.mark.parametrize("proposals", [1, 3])
@pytest.mark.parametrize(("lost", "crowned"), [(1, True), (2, False)])
def test_gains_on_a_minibatch_count_half_in_a_race_and_not_in_the_finals(
    lost: int, *, crowned: bool, proposals: int
) -> None:
    def trades(rendered: RenderedPrompt[object]) -> str:
        """What is learned mends w0 to w11, and loses some of w50 to w53."""
        learned = re.search(r"w\d", section(rendered, RULES).text)
        number = int(asked(rendered)[1:])
        mended, kept = number < 50 and learned, 50 + lost * bool(learned) <= number < 54
        return "ok" if mended or kept else "no"

    session = Session()
    settings = lean(
        training_examples=(*examples(5, first=50), *examples(12)),
        pareto_set_size=5,
        target_section_paths=(RULES,),
        validation=Racing(first=5),
        minibatch_size=3,
        rollout_budget=60,
        proposals_per_step=proposals,
    )
    result = optimize(settings, task=trades, reflection=note, session=session)
    _, *raced = session.select_all(GepaCandidateAdded)
    assert raced
    # Children that are put together gain no more than one of them does.
    assert len(session.select_all(GepaMutationAccepted)) == proposals * len(raced)
    assert any(added.best for added in raced) is crowned
    assert not result.found_better


def test_the_winner_and_the_baseline_are_tried_on_all_of_it() -> None:
    session = Session()
    result = optimize(lean(), session=session)
    assert result.found_better
    assert None not in result.scores_matrix[0]
    assert None not in result.scores_matrix[result.best_index]
    best = [score for score in result.scores_matrix[result.best_index] if score is not None]
    assert result.best_pareto_mean == sum(best) / 20
    complete = [row for row in result.scores_matrix if None not in row]
    assert sum(best) == max(sum(score or 0.0 for score in row) for row in complete)
    assert any(None in row for row in result.scores_matrix)


def test_scores_are_told_of_as_they_come() -> None:
    session = Session()
    result = optimize(lean(), session=session)
    told: dict[int, Sequence[float | None]] = {}
    for event in session.select_all(object):
        if isinstance(event, GepaCandidateAdded | GepaCandidateScored):
            known = told.get(event.candidate, (None,) * 20)
            assert all(
                one is None or one == other for one, other in zip(known, event.scores, strict=True)
            )
            told[event.candidate] = event.scores
    assert tuple(told[position] for position in range(len(told))) == result.scores_matrix


def test_a_mean_over_some_examples_is_told_beside_the_baseline_on_the_same() -> None:
    session = Session()
    optimize(lean(), session=session)
    [first, *_] = session.select_all(GepaMutationAccepted)
    assert first.pareto_mean is not None
    # One word of twenty was learned; on the eight examples of the first race it may be missing.
    assert first.pareto_mean in {0.0, 1 / 8}


def test_critical_examples_come_first_in_a_race() -> None:
    marked = tuple(
        attrs.evolve(example, critical=example.id in {"e17", "e18", "e19"}) for example in twins(20)
    )
    session = Session()
    optimize(lean(training_examples=marked, validation=Racing(first=1, every=99)), session=session)
    for event in session.select_all(GepaCandidateAdded):
        assert None not in event.scores[17:] or event.scores.count(None) > 17


def test_a_candidate_that_is_worse_where_critical_never_becomes_the_best() -> None:
    def judge(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        right = response.text == "ok"
        if example.id == "e0":  # known to the baseline, lost by whoever learns anything
            return RolloutFeedback(score=float(not right), feedback="")
        return RolloutFeedback(score=float(right), feedback=f"missing {example.label}")

    marked = tuple(attrs.evolve(one, critical=one.id == "e0") for one in twins(6))
    settings = lean(feedback_fn=judge, training_examples=marked, pareto_set_size=6)
    reply = numbered(
        lambda number, rendered: (
            instruction("Known words: w0 w1 w2 w3 w4 w5") if not number else propose(rendered)
        )
    )
    result = optimize(settings, reflection=reply, task=_answer_all)
    assert not result.found_better


def _answer_all(rendered: RenderedPrompt[object]) -> str:
    return "ok" if "w1" in rendered.text.partition("Do you know")[0] else "no"


@given(st.integers(0, 50), st.booleans())
@settings(max_examples=1, deadline=None)
def test_resumed_and_side_by_side_it_is_the_same_run(seed: int, merge: bool) -> None:
    journal = MemoryJournal()
    chosen = lean(seed=seed, enable_merge=merge, rollout_budget=200)
    result = optimize(chosen, journal=journal)
    again = Run(chosen, journal=journal)
    assert again.start() == result
    assert again.task.calls == again.reflection.calls == 0
    with ThreadPoolExecutor(4) as executor:
        assert optimize(chosen, executor=executor) == result
    assert result.total_rollouts <= 200


@pytest.mark.thorough
def test_a_larger_budget_goes_on_with_what_is_there() -> None:
    journal = MemoryJournal()
    small = optimize(lean(rollout_budget=200), journal=journal)
    large = Run(lean(rollout_budget=400), journal=journal)
    result = large.start()
    alone = optimize(lean(rollout_budget=400))
    assert result.scores_matrix == alone.scores_matrix
    assert large.task.calls < alone.total_rollouts
    assert small.total_rollouts <= 200


@pytest.mark.thorough
def test_finalists_of_a_smaller_budget_may_be_tried_on_more_with_a_larger_one() -> None:
    for seed in (0, 9):
        slow = lean(seed=seed, validation=Racing(first=2, every=2, finalists=9), exploration=0.5)
        journal = MemoryJournal()
        optimize(attrs.evolve(slow, rollout_budget=100), journal=journal)
        larger = attrs.evolve(slow, rollout_budget=200)
        resumed = optimize(larger, journal=journal)
        assert resumed.scores_matrix == optimize(larger).scores_matrix


def test_a_run_that_is_stopped_has_its_best_so_far() -> None:
    cancellation = Cancellation()
    told = Session()

    def stop_late(number: int, rendered: RenderedPrompt[object]) -> str:
        if number == 6:
            cancellation.set("enough")
        return propose(rendered)

    result = optimize(
        lean(minibatch_growth=1),
        reflection=numbered(stop_late),
        cancellation=cancellation,
        session=told,
    )
    assert result.stop_reason is StopReason.CANCELLED
    assert not tried_on(told, "final")
    assert result.found_better
    assert result.best_pareto_mean is not None
    assert result.baseline_pareto_mean is not None
    assert result.best_pareto_mean > result.baseline_pareto_mean


def test_unscored_answers_stand_for_nothing_in_a_race() -> None:
    settings = lean(max_unscored_share=1.0)
    result = optimize(settings, task=failing(TransientProviderError("429"), about("w3", "w4")))
    assert result.found_better
    assert result.unscored_rollouts


def test_a_parent_is_asked_again_about_one_example_only() -> None:
    session = Session()
    optimize(lean(minibatch_size=6), session=session)
    asked = tried_on(session, "step/.*/parent")
    assert min(asked.values()) >= 1
    assert Counter(asked.values())[6] < len(asked) / 2


def drawing(size: int, data: Sequence[GepaExample], failed: Sequence[GepaExample]) -> Minibatches:
    """Return minibatches that know that the baseline has failed on some examples."""
    training_rollouts = TrainingRollouts(Scorer({}, perfect_score=1.0))
    training_rollouts.add(
        BASELINE, [attrs.evolve(record("no"), example_id=one.id, feedback=WRONG) for one in failed]
    )
    return Minibatches(
        seed=3,
        examples={example.id: example for example in data},
        size=size,
        growth=1,
        choice="teaching",
        reuses=False,
        training_rollouts=training_rollouts,
    )


def test_minibatches_take_what_failed_and_go_through_all_the_others() -> None:
    data = examples(20)
    batches = drawing(4, data, data[:3])
    drawn = [batches.draw(BASELINE, ())[0] for _ in range(40)]
    for batch in drawn:
        assert len({example.id for example in batch}) == 4
    counts = Counter(example.id for batch in drawn for example in batch)
    assert set(counts) == {example.id for example in data}
    usual = [counts[example.id] for example in data[3:]]
    assert min(counts[example.id] for example in data[:3]) > 3 * max(usual)
    assert max(usual) - min(usual) <= 2


def test_a_small_data_set_fills_every_minibatch() -> None:
    data = examples(2)
    batches = drawing(2, data, data)
    for _ in range(10):
        assert {example.id for example in batches.draw(BASELINE, ())[0]} == {"e0", "e1"}


def record(feedback: str, trace: str = "") -> RolloutRecord:
    return RolloutRecord(
        example_id="e",
        inputs_repr="",
        output_repr="",
        tool_trace_repr=trace,
        feedback=RolloutFeedback(score=0.0, feedback=feedback),
    )


REFUNDS, SEARCH, URGENCY, ANSWER = "policies/refund-policy", "search", "Review.urgency", "answer"


class Titled(Forecast):
    """Texts, one of which has a title that is not its key."""

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        title = "When money comes back" if module.name == REFUNDS else module.name
        return attrs.evolve(super().describe(module, candidate), title=title)


def names(*modules: str) -> Names:
    return names_of(Titled(dict.fromkeys(modules, ""), {}))


def test_modules_are_blamed_by_their_names_as_words() -> None:
    called = names(REFUNDS, SEARCH, URGENCY)
    assert blamed(called, [record("The Refund-policy says nothing of vouchers")]) == {REFUNDS: 1}
    assert blamed(called, [record("searching"), record("wrong `urgency`")]) == {URGENCY: 1}
    assert blamed(called, [record("", "search({})"), record("urgency"), record("search")]) == {
        SEARCH: 2,
        URGENCY: 1,
    }
    assert blamed(called, [record("wrong")]) == {}


@pytest.mark.parametrize(
    "said",
    [
        *("refund-policy", "Refund policy", "REFUND_POLICY", "refundPolicy"),
        *("when money comes back", "When_money-comes back"),
    ],
)
def test_a_module_is_blamed_by_key_and_title_in_every_spelling(said: str) -> None:
    called = names(REFUNDS, SEARCH)
    assert blamed(called, [record(f"no: {said}, says the clerk")]) == {REFUNDS: 1}
    assert blamed(called, [record(f"no: x{said}x, says the clerk")]) == {}
    assert blamed(called, [record("the policy of a refund; money comes")]) == {}


def test_what_perfect_rollouts_name_as_often_is_not_blamed() -> None:
    called = names(ANSWER, REFUNDS, SEARCH)
    failed = [
        record("the answer breaks a rule of the refund policy", "search({})"),
        record("wrong answer; search was asked for nothing", "search({})"),
    ]
    right = record("the answer is right", "search({})")

    assert blamed(called, failed, [right]) == {REFUNDS: 1, SEARCH: 2}
    assert blamed(called, failed) == {ANSWER: 2, REFUNDS: 1, SEARCH: 2}


def test_a_part_with_a_common_name_does_not_have_every_step() -> None:
    def say(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        right = int(str(example.label).lstrip("w")) % 2 == 0
        return RolloutFeedback(score=float(right), feedback=f"by the notes: {right}")

    session = Session()
    optimize(lean(feedback_fn=say, minibatch_size=8), session=session)
    asked_for = Counter(event.module for event in session.select_all(GepaMutationRejected))
    assert asked_for["section rules"] > asked_for["section notes"] / 2 > 0


def turns(
    modules: Sequence[Module], blame: Mapping[str, int], *, steps: int = 400, rate: float = 0.0
) -> Counter[tuple[str, ...]]:
    """Count what so many steps change, by names."""
    turns, draws, chosen = (
        Turns(1, modules, example_rate=rate),
        Draws(1, "blame"),
        Counter[tuple[str, ...]](),
    )
    for _ in range(steps):
        turn, draw = turns.at(0), draws.at(0)
        found = blamed_modules(turn, blame, draw=draw)
        turns.took(turn, found)
        draws.popleft()
        chosen[tuple(one.name for one in found)] += 1
    return chosen


def test_blame_leads_to_the_module_and_starves_nobody() -> None:
    modules = (SectionModule(RULES), SectionModule(NOTES))
    chosen = turns(modules, {"section notes": 2})
    assert set(chosen) == {("section notes",), ("section rules",)}
    assert chosen[("section notes",)] > 300
    assert chosen[("section rules",)] > 10
    many = turns([ToolModule(name) for name in "abcdefgh"], {"tool a": 1})
    unblamed = [count for names, count in many.items() if names != ("tool a",)]
    assert len(unblamed) == 7
    assert max(unblamed) - min(unblamed) <= 1
    for draw in (0.1, 0.6, 0.9):
        blame = {"section notes": 2}
        assert blamed_modules(Turn(modules[:1]), blame, draw=draw) == modules[:1]
        assert blamed_modules(Turn(), blame, draw=draw) == ()


def test_half_of_the_steps_change_all_that_is_blamed_and_no_more_than_four() -> None:
    modules = tuple(ToolModule(name) for name in "abcdef")
    blame = {f"tool {name}": count for name, count in zip("abcde", (1, 2, 3, 4, 5), strict=True)}
    chosen = turns(modules, blame)
    together = ("tool e", "tool d", "tool c", "tool b")
    assert {names for names in chosen if len(names) > 1} == {together}
    assert 160 < chosen[together] < 240
    # Half of the others have the one that is blamed most, or else have it in its turn.
    alone = {names[0]: count for names, count in chosen.items() if len(names) == 1}
    assert 80 < alone["tool e"] < 150
    assert {"tool a", "tool f"} <= set(alone)


def test_examples_are_changed_one_at_a_time() -> None:
    modules: tuple[Module, ...] = (
        SectionModule(RULES),
        *(TaskExampleModule(("shots", key)) for key in "ab"),
    )
    blame = {one.name: 1 for one in modules}
    chosen = turns(modules, blame, rate=0.7)
    assert set(chosen) == {(one.name,) for one in modules}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "quick"}, "strategy.preset: expected one of `lean`, `paper`, found 'quick'"),
        ({"validation": Racing}, r"validation: expected Full\(\) or Racing\(\), found <class"),
        ({"exploration": 1.5}, "exploration: expected a number from 0 to 1, found 1.5"),
        ({"exploration": "x"}, "exploration: expected a number from 0 to 1, found 'x'"),
        (
            {"minibatches": "x"},
            "minibatches: expected one of `random`, `epochs`, `teaching`, found 'x'",
        ),
        (
            {"module_choice": "x"},
            "module_choice: expected one of `turns`, `all`, `random`, found",
        ),
        ({"reuse_rollouts": 1}, "reuse_rollouts: expected true or false, found 1"),
        (
            {"validation": Racing(), "pick": {"score": 1}},
            r"objectives.pick: expected none with strategy.validation=Racing\(\)",
        ),
        (
            {"validation": Racing(), "frontier_type": "hybrid"},
            "objectives.frontier_type: expected 'instance' or 'cartesian' with strategy",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@pytest.mark.parametrize("field", ["first", "every", "finalists"])
def test_races_have_sizes(field: str) -> None:
    with pytest.raises(ConfigError, match=f"Racing: {field}: expected an integer of at least"):
        Racing(**{field: -1})


def test_luck_on_a_few_examples_does_not_keep_better_candidates_out() -> None:
    """The baseline is right on the four examples that races begin with, and nowhere else."""
    early = random.Random("1/order").sample(range(20), 20)[:4]
    lucky = {f"w{place}" for place in early}

    def right_elsewhere(rendered: RenderedPrompt[object]) -> str:
        if re.search(r"w\d", section(rendered, RULES).text):
            return "no" if asked(rendered) == f"w{early[0]}" else "ok"
        return "ok" if asked(rendered) in lucky else "no"

    session = Session()
    settings = lean(target_section_paths=(RULES,), exploration=0, seed=1)
    result = optimize(settings, task=right_elsewhere, session=session)
    [first] = {added.mean for added in session.select_all(GepaCandidateAdded)[:1]}
    assert first == 1.0
    assert result.found_better
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == (0.2, 0.95)
    # Not only the finals have found it.
    raced = [added for added in session.select_all(GepaCandidateAdded) if added.candidate]
    assert any(added.best for added in raced)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rollout_budget": 150}, StopReason.BUDGET),
        ({"stoppers": (MaxProposals(2),)}, StopReason.PROPOSALS),
        (
            {"feedback_fn": scored(0.0), "perfect_score": 0.0, "max_idle_steps": 1},
            StopReason.NO_PROGRESS,
        ),
        ({"training_examples": twins(5), "pareto_set_size": 5}, StopReason.PERFECT),
    ],
)
def test_the_baseline_is_tried_on_little_first_and_on_the_rest_at_the_end(
    changes: dict[str, Any], reason: StopReason
) -> None:
    session = Session()
    result = optimize(lean(**changes), session=session)
    assert result.stop_reason is reason
    size = len(result.pareto_ids)
    positions = [event.position for event in session.select_all(GepaRolloutCompleted)]
    before = next(at for at, one in enumerate(positions) if not one.startswith("baseline/"))
    assert before == 4
    known = [score for score in result.scores_matrix[0] if score is not None]
    assert len(known) == size
    assert result.baseline_pareto_mean == sum(known) / size


@given(
    st.integers(0, 99),
    st.integers(0, 7),
    st.booleans(),
    st.sampled_from(((1, 1), (3, 1), (1, 3), (2, 2))),
)
@settings(max_examples=3, deadline=None)
def test_baseline_and_winners_of_races_are_tried_on_all_critical_examples(
    seed: int, count: int, shuffle: bool, at_once: tuple[int, int]
) -> None:
    critical = {f"e{number}" for number in random.Random(seed).sample(range(12), count)}
    marked = tuple(attrs.evolve(one, critical=one.id in critical) for one in twins(12))
    settings = lean(
        seed=seed,
        training_examples=marked,
        pareto_set_size=12,
        shuffle=shuffle,
        rollout_budget=110,
        proposals_per_step=at_once[0],
        steps_at_once=at_once[1],
    )
    session = Session()
    optimize(settings, session=session)
    places = [at for at, one in enumerate(settings.split[0]) if one.critical]
    added = session.select_all(GepaCandidateAdded)
    tried = [score is not None for score in added[0].scores]
    assert sum(tried) == max(4, len(places))
    for event in added:
        if event.best == event.candidate:
            assert None not in [event.scores[place] for place in places]


@pytest.mark.parametrize(("k", "g"), [(1, 1), (4, 1), (1, 4), (2, 3)])
def test_what_is_perfect_at_once_is_known_after_a_few_steps(k: int, g: int) -> None:
    sizes: dict[str, Any] = {"training_examples": twins(60), "pareto_set_size": 60}
    at_once = {"proposals_per_step": k, "steps_at_once": g}
    run = Run(lean(**sizes, **at_once, rollout_budget=900), task=lambda _: "ok")
    result = run.start()
    assert result.stop_reason is StopReason.PERFECT
    # 4 examples, then 8, 16, 32 and all 60.
    assert result.steps <= 4 + g
    assert result.total_rollouts <= 60 + 3 * k * result.steps
    assert run.reflection.calls == 0


def test_failed_examples_take_turns() -> None:
    session = Session()
    settings = lean(
        feedback_fn=scored(0.0), minibatch_size=6, rollout_budget=500, target_section_paths=(RULES,)
    )
    optimize(settings, reflection=_something_new, session=session)
    tried = Counter(
        event.record.example_id
        for event in session.select_all(GepaRolloutCompleted)
        if re.match(r"step/\d+/child/", event.position)
    )
    assert len(tried) == 20
    assert sum(tried.values()) > 250
    assert max(tried.values()) - min(tried.values()) <= 6


def _something_new(rendered: RenderedPrompt[object]) -> str:
    return instruction(f"Known words: {random.Random(rendered.text).random()}")


@pytest.mark.parametrize(
    ("gains", "behind"),
    [
        ([0.0], False),
        ([-1.0], True),
        ([-0.5, -0.5], True),
        ([0.0, 0.0, 0.0, -1.0], True),
        ([1.0, -1.0, 0.0, -1.0, 1.0, -1.0], False),
        ([0.5, 0.5, -0.5], False),
    ],
)
def test_who_may_be_as_good_is_not_behind(gains: list[float], behind: bool) -> None:
    assert is_behind(gains) is behind


@pytest.mark.parametrize("finalists", [1, 2])
def test_finals_try_so_many_candidates_besides_the_baseline(finalists: int) -> None:
    session = Session()
    races = Racing(finalists=finalists)
    sizes = {"training_examples": twins(40), "pareto_set_size": 40}
    optimize(lean(**sizes, validation=races, stoppers=(MaxProposals(8),)), session=session)
    tried = {int(name.split("/")[1]) for name in tried_on(session, "final/")}
    assert 0 in tried
    assert len(tried) == 1 + finalists


@pytest.mark.parametrize(
    ("target", "k", "g"),
    [
        (TargetScore(0.15), 1, 1),
        (RequiredObjectives({"score": 0.15}), 2, 2),
        *thorough([(RequiredObjectives({"score": 0.15}), 1, 1), (TargetScore(0.15), 1, 3)]),
    ],
)
def test_a_target_is_reached_on_everything_and_not_on_a_lucky_few(
    target: TargetScore | RequiredObjectives, k: int, g: int
) -> None:
    """One word of 40 is a quarter of the first four examples, for who is lucky with these."""
    sizes: dict[str, Any] = {"training_examples": twins(40), "pareto_set_size": 40}
    for seed in range(2):
        at_once = {"proposals_per_step": k, "steps_at_once": g}
        chosen = lean(seed=seed, stoppers=(target,), rollout_budget=500, **sizes, **at_once)
        journal = MemoryJournal()
        result = optimize(chosen, journal=journal)
        assert result.stop_reason is target.reason
        best = result.scores_matrix[result.best_index]
        assert None not in best
        assert sum(one or 0.0 for one in best) / 40 >= 0.15
        assert optimize(chosen, journal=journal) == result


def test_a_target_that_is_far_off_costs_nothing() -> None:
    with_target = optimize(lean(stoppers=(TargetScore(2.0),)))
    assert with_target.scores_matrix == optimize(lean()).scores_matrix

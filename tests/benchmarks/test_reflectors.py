"""Reflection models that read only a question, and the worlds of definition lists."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from further import thorough
from reflectors.graphs import GraphHabits, GraphOfRules, GraphShape, GraphWriter
from reflectors.kinds import KINDS
from reflectors.questions import read
from reflectors.slots import FORBIDS, SHAPES, SlotWorld
from reflectors.writers import SlotHabits, SlotWriter
from reflectors_bench import search_one
from search import ours, peer
from search.interfaces import Writer

CALLS = 150


class Listening:
    """A writer that keeps what it was asked."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.asked: list[str] = []

    @property
    def calls(self) -> int:
        return self.writer.calls

    def reply(self, question: str) -> str:
        self.asked.append(question)
        return self.writer.reply(question)


@pytest.mark.parametrize("seed", [0, *thorough([1])])
def test_no_search_doubles_a_definition_or_moves_it_away(seed: int) -> None:
    world = SlotWorld(SHAPES["slots"], seed)
    writer = SlotWriter(SlotHabits(), seed)
    curve = ours.search(world, writer, budget=400, preset="lean", minibatch_size=6)
    assert len(curve.pool) > 2
    assert [world.damage(texts) for texts in curve.pool] == [()] * len(curve.pool)


@pytest.mark.parametrize(("seed", "is_lost"), [(2, False), (3, True)])
def test_the_best_of_a_pool_that_did_not_win_was_lost_somewhere(seed: int, is_lost: bool) -> None:
    outcome = search_one(("weak lines", "default", seed, CALLS))
    assert bool(outcome.lost) == (outcome.rank > 1) == is_lost
    assert outcome.regret >= max(0.0, outcome.selectable)
    assert search_one(("weak lines", "paper", seed, CALLS)).rank == 1


def test_a_search_tells_how_far_each_candidate_came() -> None:
    world, writer = KINDS["mistakes"].make(1)
    curve = ours.search(world, writer, budget=400, preset="lean", minibatch_size=6)
    stages = dict(zip((str(texts) for texts in curve.pool), curve.stages, strict=True))
    assert stages[str(world.first)] == stages[str(curve.winner)] == "finals"
    assert {*curve.stages} == {"race", "later", "finals"}


@pytest.mark.parametrize(("kind", "seed"), [("defective part", 0), *thorough([("defective", 4)])])
def test_a_text_that_is_written_anew_doubles_no_definition(kind: str, seed: int) -> None:
    world, writer = KINDS[kind].make(seed)
    listening = Listening(writer)
    curve = ours.search(world, listening, budget=600, preset="lean", minibatch_size=6)
    assert isinstance(world, SlotWorld)
    assert any("It has no text yet" in question for question in listening.asked)
    assert [world.damage(texts) for texts in curve.pool] == [()] * len(curve.pool)


# The other kinds differ from slots in what the model makes of a question.
@pytest.mark.parametrize("kind", ["strong lines", "slots", "one text", *thorough(["graph"])])
@pytest.mark.parametrize(
    "search",
    [
        partial(ours.search, preset="lean", minibatch_size=6),
        partial(ours.search, preset="paper", minibatch_size=3),
        partial(peer.search, reflection_minibatch_size=6),
    ],
    ids=["default", "paper", "gepa"],
)
def test_a_writer_reads_the_texts_and_the_failures_out_of_every_form_of_question(
    kind: str, search: partial[object]
) -> None:
    world, writer = KINDS[kind].make(1)
    listening = Listening(writer)
    search(world, listening, budget=CALLS)
    shown = [read(question) for question in listening.asked]
    assert shown
    first = {*world.first.values()}
    assert any(text in first for one in shown for text in one.parts.values())
    inputs = {item.text.partition("] ")[2] for item in world.train}
    assert all(" ".join(answer.words) in inputs for one in shown for answer in one.answers)
    assert any(answer.feedback for one in shown for answer in one.answers)


def test_the_same_texts_always_get_the_same_answer() -> None:
    world = SlotWorld(SHAPES["slots"], 1)
    first = [world.answer(world.first, item).score for item in world.train]
    assert first == [world.answer(world.first, item).score for item in world.train]
    assert world.expected(world.first, world.train) == pytest.approx(sum(first) / len(first))


def test_whole_definitions_sort_nearly_everything_unless_the_source_forbids_to_heed_them() -> None:
    def known(shape: str) -> float:
        world = SlotWorld(SHAPES[shape], 2)
        texts = {
            part: "\n".join(
                [
                    *(line for line in text.splitlines() if not line.startswith("- ")),
                    *(
                        f"- {label}: {', '.join(world.telling[label])}"
                        for label in world.labels
                        if world.home[label] == part
                    ),
                ]
            )
            for part, text in world.first.items()
        }
        return world.expected(texts, world.test)

    assert known("slots") > 0.9
    assert known("defective") < 0.4
    assert FORBIDS in SlotWorld(SHAPES["defective"], 2).first["part0"]


def test_the_rules_of_all_nodes_answer_nearly_everything_and_those_of_three_do_not() -> None:
    world = GraphOfRules(GraphShape(), 3)
    assert world.expected(world.first, world.test) < 0.25
    assert world.expected(world.perfect, world.test) > 0.95
    for node in world.first:
        texts = {**world.perfect, node: world.first[node]}
        assert world.expected(texts, world.test) < 0.9


def test_a_case_of_a_graph_passes_three_of_the_four_prompts_the_same_for_both_packages() -> None:
    world = GraphOfRules(GraphShape(), 3)
    asked = set()
    for item in world.train:
        trial = world.answer(world.first, item)
        router, desk, formatter = (node for node, _, _ in trial.steps)
        assert (router, formatter) == ("router", "formatter")
        asked.add(desk)
        assert (trial.score, trial.feedback) == world.judge(item, trial.steps[-1][2])
    assert asked == {"billing", "repairs"}
    # What one package has found is worth the same in the other one.
    curve = ours.search(
        world, GraphWriter(GraphHabits(), 3), budget=CALLS, preset="paper", minibatch_size=3
    )
    assert curve.final == world.expected(curve.winner, world.test)
    assert {*curve.winner} == {*world.first}


@pytest.mark.thorough
def test_a_question_on_a_node_shows_in_either_package_only_what_that_node_was_asked() -> None:
    for search in (partial(ours.search, preset="paper", minibatch_size=3), peer.search):
        world, writer = KINDS["graph"].make(2)
        listening = Listening(writer)
        search(world, listening, budget=2 * CALLS)
        shown = [read(question) for question in listening.asked]
        on_desks = [one for one in shown if not {"billing", "repairs"}.isdisjoint(one.parts)]
        assert on_desks
        for one in on_desks:
            [desk] = one.parts
            feedback = [answer.feedback for answer in one.answers if answer.feedback]
            assert feedback
            assert all(f"answered {desk} " in told for told in feedback)


def test_a_definition_that_is_doubled_or_moved_is_damage() -> None:
    world = SlotWorld(SHAPES["slots"], 3)
    label = next(label for label in world.labels if world.home[label] == "part0")
    assert not world.damage(world.first)
    doubled = {**world.first, "part0": f"{world.first['part0']}\n- {label}: again"}
    moved = {
        "part0": world.first["part0"].replace(f"- {label}:", f"{label} is"),
        "part1": f"{world.first['part1']}\n- {label}: elsewhere",
    }
    assert world.damage(doubled) == (label,)
    assert world.damage(moved) == (label,)


def test_a_strong_writer_of_slots_never_doubles_or_moves_a_definition() -> None:
    world = SlotWorld(SHAPES["slots"], 4)
    writer = SlotWriter(SlotHabits(), 4)
    curve = peer.search(world, writer, budget=CALLS, reflection_minibatch_size=12)
    assert len(curve.pool) > 1
    assert not any(world.damage(texts) for texts in curve.pool)

"""Worlds of drawn shapes: made by their seed alone, and fair to both sides."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import get_args

import attrs
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import shapes
from search import ours, peer
from search.methods import BEST_SETTINGS, Search
from search.readers import Reading, ReadingModel, Shown
from search.shapes import Hardness, Naming, Noise, ShapedWorld, Traits, drawn
from search.worlds import Item, Texts, Trial

SEEDS = range(40)
FOUR = next(traits for traits in map(drawn, SEEDS) if traits.shape.modules == 4)
"""A shape of four texts."""
FAULTLESS = Reading(
    lessons=20,
    wrong=0.0,
    forgets=0.0,
    rubbish=0.0,
    repeats=0.0,
    truncates=0.0,
    nonsense=0.0,
    insight=1.0,
    credulity=1.0,
)


def ideal(world: ShapedWorld) -> dict[str, str]:
    return {
        name: "\n".join([text.splitlines()[0], *(r.line for r in world.rules if r.module == name)])
        for name, text in world.first.items()
    }


def feedback(world: ShapedWorld, texts: Texts | None = None) -> list[Trial]:
    return [world.answer(texts or world.first, item) for item in world.test]


def test_a_shape_and_its_worlds_are_functions_of_their_seeds() -> None:
    for seed in SEEDS[:8]:
        assert drawn(seed) == drawn(seed)
        one, same = (ShapedWorld(drawn(seed), 1) for _ in range(2))
        assert (one.first, one.rules, one.train, one.test) == (
            (same.first, same.rules, same.train, same.test)
        )
        assert [feedback(one) for _ in range(2)] == [feedback(same) for _ in range(2)]
        assert ShapedWorld(drawn(seed), 2).rules != one.rules


def test_forty_seeds_draw_every_trait() -> None:
    traits = [drawn(seed) for seed in SEEDS]
    assert {one.naming for one in traits} == set(get_args(Naming))
    assert {one.noise for one in traits} == set(get_args(Noise))
    assert {one.hardness for one in traits} == set(get_args(Hardness))
    assert {one.shape.modules for one in traits} == set(range(1, 7))
    for flags in (
        {one.shape.binary for one in traits},
        {one.numbered for one in traits},
        {one.reading.sees_prompt for one in traits},
        {one.shape.interference > 0 for one in traits},
        {one.line_cost > 0 for one in traits},
        {one.shape.known > 0 for one in traits},
    ):
        assert flags == {True, False}


@pytest.mark.parametrize("seed", SEEDS)
def test_an_ideal_prompt_scores_nearly_1_and_one_with_strange_lines_less(seed: int) -> None:
    world = ShapedWorld(drawn(seed), 0)
    best = ideal(world)
    score = world.expected(best, world.test)
    assert score > 0.92
    assert score > world.expected(world.first, world.test) + 0.1
    crowded = {name: text + "\nBe careful." * 100 for name, text in best.items()}
    assert world.expected(crowded, world.test) < score - 0.1


def test_lines_of_one_text_dilute_those_of_another_where_the_prompt_has_no_room() -> None:
    world = ShapedWorld(attrs.evolve(FOUR, line_cost=0.0, room=100), 0)
    first, *others = ideal(world)
    crowded = {**ideal(world), first: ideal(world)[first] + "\nBe careful." * 200}
    items = [one for one in world.test if all(rule.module in others for rule in one.rules)]
    assert items
    assert world.expected(crowded, items) < 0.6 * world.expected(ideal(world), items)


def test_lines_in_the_wrong_text_interfere_where_the_shape_says_so() -> None:
    shape = attrs.evolve(FOUR.shape, interference=0.05)
    world = ShapedWorld(attrs.evolve(FOUR, shape=shape, line_cost=0.0, room=10_000), 0)
    texts = ideal(world)
    strange = next(rule for rule in world.rules if rule.module != next(iter(texts)))
    name = next(iter(texts))
    score = world.expected({**texts, name: f"{texts[name]}\n{strange.line}"}, world.test)
    assert score == pytest.approx(0.95 * world.expected(texts, world.test), abs=0.01)


def told(naming: Naming) -> tuple[ShapedWorld, list[Trial]]:
    world = ShapedWorld(attrs.evolve(FOUR, naming=naming, numbered=True), 0)
    return world, feedback(world)


@pytest.mark.parametrize("naming", ["key", "title", "decoy"])
def test_feedback_names_the_part_at_fault_by_key_or_by_title(naming: Naming) -> None:
    world, trials = told(naming)
    names = {key: key if naming == "key" else title for key, title in world.titles.items()}
    lessons = [trial for trial in trials if trial.module]
    assert lessons
    assert all(f"({names[trial.module]})" in trial.feedback for trial in lessons)
    decoy = f"[{world.titles[world.decoy]}]"
    assert all((decoy in trial.feedback) is (naming == "decoy") for trial in trials)


def test_feedback_with_wrong_names_is_right_about_half_of_the_time() -> None:
    world, trials = told("wrong")
    lessons = [trial for trial in trials if trial.module]
    right = sum(f"({world.titles[trial.module]})" in trial.feedback for trial in lessons)
    assert 0.3 < right / len(lessons) < 0.7
    assert all(any(f"({t})" in one.feedback for t in world.titles.values()) for one in lessons)


@pytest.mark.parametrize("naming", ["nickname", "none"])
def test_feedback_by_nickname_or_without_names_holds_no_word_of_a_name(naming: Naming) -> None:
    world, trials = told(naming)
    words = {w for name in (*world.titles, *world.titles.values()) for w in name.lower().split()}
    said = [set(re.findall(r"[\w-]+", trial.feedback.lower())) for trial in trials]
    assert not any(words & one for one in said)
    assert any("(" in trial.feedback for trial in trials) is (naming == "nickname")


def test_noise_is_new_in_each_answer_or_fixed_or_drifts() -> None:
    shape = attrs.evolve(FOUR.shape, binary=False, noise=0.2)

    def scores(noise: Noise) -> list[float]:
        world = ShapedWorld(attrs.evolve(FOUR, shape=shape, noise=noise), 0)
        half = {**ideal(world), **dict(list(world.first.items())[:1])}
        return [world.answer(half, world.test[0]).score for _ in range(700)]

    assert len(set(scores("fixed"))) == 1
    assert len(set(scores("fresh"))) > 20
    drifting = scores("drifting")
    assert sum(drifting[:350]) > sum(drifting[350:]) + 20


class Careful(ReadingModel):
    """A reflection model that remembers what it was shown, and what it wrote."""

    def __init__(self, world: ShapedWorld, habits: Reading) -> None:
        super().__init__(habits, world.wrong_actions, world.seed)
        self.shown: list[Shown] = []
        self.written = set(world.first.items())

    def revise(self, shown: Shown) -> Mapping[str, str]:
        new = super().revise(shown)
        self.shown.append(shown)
        self.written |= set(new.items())
        return new


class Told(ShapedWorld):
    """A world that remembers what it said of which input."""

    def __init__(self, traits: Traits, number: int) -> None:
        super().__init__(traits, number)
        self.said: set[tuple[str, str]] = set()

    def answer(self, texts: Texts, item: Item) -> Trial:
        trial = super().answer(texts, item)
        self.said.add((item.text, trial.feedback))
        return trial


SEARCHES: Mapping[str, Search] = {
    "lean": partial(ours.search, preset="lean", minibatch_size=6),
    "gepa": peer.search,
    "gepa-best": partial(peer.search, **BEST_SETTINGS),
}


@pytest.mark.parametrize("method", SEARCHES)
def test_both_sides_show_the_reader_texts_inputs_and_feedback_as_they_are(method: str) -> None:
    world = Told(FOUR, 0)
    reader = Careful(world, world.traits.reading)
    curve = SEARCHES[method](world, reader, budget=300)
    assert reader.shown
    assert curve.reflections == len(reader.shown)
    for shown in reader.shown:
        assert shown.parts.keys() == world.first.keys()
        if method == "lean":  # it moves lines, and carries them into other children
            written = {line for _, text in reader.written for line in text.splitlines()}
            assert written.issuperset("\n".join(shown.parts.values()).splitlines())
        else:
            assert shown.parts.items() <= reader.written
        assert shown.answers
        assert world.said.issuperset(shown.answers)


def test_the_reader_learns_nothing_that_it_was_not_shown() -> None:
    world = Told(FOUR, 0)
    reader = Careful(world, FAULTLESS)
    ours.search(world, reader, budget=300, preset="lean", minibatch_size=6)
    for shown in reader.shown:
        told = {
            tuple(found)
            for _, feedback in shown.answers
            for found in re.findall(r"(\w+) wants (\w+)", feedback)
        }
        before = "\n".join(shown.parts.values())
        again = ReadingModel(FAULTLESS, (), 0).revise(shown)
        for text in again.values():
            lines = set(text.splitlines()) - set(before.splitlines())
            assert lines <= {f"- when {cue} then {action}" for cue, action in told}


PARTS = {"one-two": "One two: rules on red and blue", "three-four": "Three four: rules on green"}


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("baba wants tu (one-two)", "one-two"),
        ("baba wants tu (Three four)", "three-four"),
        ("baba wants tu (threes)", "three-four"),
        ("baba wants tu", "three-four"),
    ],
)
def test_a_question_on_all_parts_changes_the_one_named_or_else_that_the_input_is_about(
    said: str, part: str
) -> None:
    text = "[x-1] baba" if "(" in said else "[x-1] baba in green"
    shown = Shown(asked=tuple(PARTS), parts=PARTS, answers=((text, said),))
    for seed in range(10):
        new = ReadingModel(FAULTLESS, (), seed).revise(shown)
        assert new == {part: f"{PARTS[part]}\n- when baba then tu"}


def test_a_question_on_one_part_leaves_out_what_fits_another_part_that_is_seen() -> None:
    answers = (("[x-1] baba", "baba wants tu (Three four)"),)
    shown = Shown(asked=("one-two",), parts=PARTS, answers=answers)
    sees = attrs.evolve(FAULTLESS, sees_prompt=True)
    assert ReadingModel(sees, (), 0).revise(shown) == {"one-two": PARTS["one-two"]}
    unnamed = attrs.evolve(shown, answers=(("[x-1] baba", "baba wants tu"),))
    assert "baba" in ReadingModel(FAULTLESS, (), 0).revise(unnamed)["one-two"]


@pytest.mark.parametrize("said", ["baba wants tu", "baba wants tu (threes)"])
@pytest.mark.parametrize("text", ["[x-1] baba", "[x-1] baba in green"])
def test_a_lesson_belongs_to_the_only_part_of_a_prompt(said: str, text: str) -> None:
    shown = Shown(asked=("one-two",), parts={"one-two": "Rules:"}, answers=((text, said),))
    doubts = attrs.evolve(FAULTLESS, insight=0.0, credulity=0.0)
    new = ReadingModel(doubts, (), 0).revise(shown)
    assert new == {"one-two": "Rules:\n- when baba then tu"}


def test_the_command_prints_a_line_for_each_odd_shape_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "shapes.json"
    options = "--shapes 2 --seeds 1 --odd --offset 1 --searches lean,gepa --budget 60,120 --jobs 1"
    options += " --names nickname"
    assert shapes.main([*options.split(), "--json", str(kept)]) == 0
    printed = capsys.readouterr().out
    for seed in (3, 5):
        traits = attrs.evolve(drawn(seed), naming="nickname")
        assert f"  {seed}: {traits}" in printed
    assert "lean - gepa at 120" in printed
    cells = json.loads(kept.read_text("utf-8"))["found"]
    assert [(one["shape"], one["budget"], one["search"]) for one in cells[:3]] == [
        (3, 60, "lean"),
        (3, 60, "gepa"),
        (3, 120, "lean"),
    ]

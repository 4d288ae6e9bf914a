"""The comparison with gepa: same task for both sides, and figures that say what they mean."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import attrs
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from further import thorough
from search import ours, peer
from search.claims import check, summary
from search.curves import Curve
from search.families import drawn
from search.methods import BEST, BEST_SETTINGS, DEFAULTS, LEAN, METHODS, Run
from search.plot import plot
from search.reflecting import Habits, Reflector
from search.results import Cell, Result
from search.seeds import difference
from search.tasks import TASKS
from search.tickets import TicketReflector, TicketWorld
from search.tool_worlds import ELSEWHERE, ToolShape, ToolWorld
from search.worlds import Item, Texts, Trial

NEW = ("tools", "few-shot", "mixed")
CALLS = 300


def lines_of(texts: Iterable[tuple[str, str]]) -> set[str]:
    return {line for _, text in texts for line in text.split("\n")}


class Overheard:
    """A world and a reflection model that remember what they saw, said and wrote."""

    def __init__(self, family: str, *, moves_lines: bool = False) -> None:
        self._world, self._reflector = TASKS[family].make(3)
        self._moves_lines = moves_lines
        world = self._world
        self.seed, self.tools, self.first = world.seed, world.tools, world.first
        self.train, self.validation, self.test = world.train, world.validation, world.test
        self.seen: set[tuple[str, str]] = set()
        self.written = set(world.first.items())
        self.said: set[str] = set()

    @property
    def calls(self) -> int:
        return self._world.calls

    def has_written(self, texts: Iterable[tuple[str, str]]) -> bool:
        if self._moves_lines:
            return lines_of(texts) <= lines_of(self.written)
        return self.written.issuperset(texts)

    def answer(self, texts: Texts, item: Item) -> Trial:
        self.seen.update(texts.items())
        trial = self._world.answer(texts, item)
        self.said.add(trial.feedback)
        return trial

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        return self._world.expected(texts, items)

    def improve(self, module: str, text: str, feedback: Sequence[str]) -> str:
        assert self.has_written([(module, text)])
        assert feedback
        assert self.said.issuperset(feedback)
        improved = self._reflector.improve(module, text, feedback)
        self.written.add((module, improved))
        return improved

    def improve_any(self, texts: Mapping[str, str], feedback: Sequence[str]) -> Mapping[str, str]:
        assert self.has_written(texts.items())
        assert self.said.issuperset(feedback)
        improved = self._reflector.improve_any(texts, feedback)
        self.written.update(improved.items())
        return improved


@pytest.mark.parametrize("family", NEW)
@pytest.mark.parametrize("preset", ["lean", *thorough(["paper"])])
def test_promptgraft_hands_texts_between_both_models_unchanged(family: str, preset: str) -> None:
    world = Overheard(family, moves_lines=preset == "lean")
    # One reflection each, and nothing shortened: other texts would be made of replies.
    curve = ours.search(
        world,
        world,
        budget=CALLS,
        preset=preset,
        minibatch_size=6,
        additions=("lines", "whole_prompt", "blame") if preset == "lean" else (),
    )
    assert len(world.seen) > len(world.first)
    assert world.has_written(world.seen)
    assert curve.calls == world.calls <= CALLS


class Awkward(Overheard):
    """Writes texts that look like something else, and takes each for better than the last."""

    TEXTS = (
        "Call it:",
        '"quoted": yes',
        "one\n\ntwo: three\n  - four",
        "|",
        "{",
        "- when a then b",
    )

    def answer(self, texts: Texts, item: Item) -> Trial:
        return attrs.evolve(super().answer(texts, item), score=self.calls / 10_000)

    def improve(self, module: str, text: str, feedback: Sequence[str]) -> str:
        super().improve(module, text, feedback)
        improved = self.TEXTS[self._reflector.calls % len(self.TEXTS)]
        self.written.add((module, improved))
        return improved

    def improve_any(self, texts: Mapping[str, str], feedback: Sequence[str]) -> Mapping[str, str]:
        blamed = super().improve_any(texts, feedback)
        return {name: self.improve(name, texts[name], feedback) for name in blamed}


def test_descriptions_of_tools_survive_whatever_they_look_like() -> None:
    world = Awkward("tools")
    # Without a restart, which asks for a text as if there were none.
    additions = ("lines", "whole_prompt", "blame", "shorten")
    ours.search(world, world, budget=300, preset="lean", minibatch_size=2, additions=additions)
    assert len({text for _, text in world.seen} & set(Awkward.TEXTS)) > 4
    assert world.seen <= world.written


@pytest.mark.parametrize("family", NEW)
@pytest.mark.parametrize("settings", [{}, BEST_SETTINGS], ids=["defaults", "best"])
def test_gepa_is_given_the_same_task(family: str, settings: Mapping[str, Any]) -> None:
    world = Overheard(family)
    curve = peer.search(world, world, budget=CALLS, **settings)
    assert len(world.seen) > len(world.first)
    assert world.seen <= world.written
    assert curve.points[0] == (0, world.expected(world.first, world.test))


def tools() -> tuple[ToolWorld, dict[str, str]]:
    """Return tools, and texts that say all that there is to say."""
    world = ToolWorld(ToolShape(), 1)
    rules = {rule for items in (world.train, world.test) for item in items for rule in item.rules}
    told = {
        name: "\n".join(sorted(rule.line for rule in rules if rule.module == name))
        for name in world.first
    }
    return world, told


def test_tools_that_are_described_fully_are_called_rightly() -> None:
    world, told = tools()
    assert world.expected(told, world.test) > 0.9 > 0.4 > world.expected(world.first, world.test)


def test_a_description_that_claims_too_much_attracts_the_items_of_others() -> None:
    world, told = tools()
    greedy, *others = world.tools
    claims = "\n".join(told[name] for name in others)
    claiming = told | {greedy: "\n".join([claims, told[greedy]])}
    assert world.expected(claiming, world.test) < world.expected(told, world.test) - 0.1


def test_a_line_that_sends_elsewhere_mends_a_false_claim() -> None:
    world, told = tools()
    greedy, *others = world.tools
    cues = [line.split()[2] for name in others for line in told[name].splitlines()]
    owned = {line.split()[2] for line in told[greedy].splitlines()}
    strange = [cue for cue in cues if cue not in owned][:3]
    claimed = [told[greedy], *(f"- when {cue} then lend" for cue in strange)]
    mended = [*claimed, *(f"- when {cue} then {ELSEWHERE}" for cue in strange)]
    before, after = (
        world.expected(told | {greedy: "\n".join(lines)}, world.test) for lines in (claimed, mended)
    )
    assert after > before


def test_the_expected_score_of_tools_is_what_answers_come_to() -> None:
    world, told = tools()
    half = {name: "\n".join(text.splitlines()[::2]) for name, text in told.items()}
    items = world.train[:20]
    answered = [world.answer(half, item).score for item in items for _ in range(100)]
    assert statistics.fmean(answered) == pytest.approx(world.expected(half, items), abs=0.03)


def test_tickets_are_split_anew_by_each_seed_and_never_shared_by_the_parts() -> None:
    one, other = TicketWorld(1), TicketWorld(2)
    parts = [{item.id for item in part} for part in (one.train, one.validation, one.test)]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert {item.id for item in other.test} != parts[-1]
    assert [item.id for item in TicketWorld(1).test] == [item.id for item in one.test]


def test_an_example_in_the_prompt_teaches_the_embedded_model() -> None:
    world = TicketWorld(1)
    failed = [trial for item in world.train if not (trial := world.answer(world.first, item)).score]
    careful = Habits(lessons=9, wrong=0, forgets=0, rubbish=0, repeats=0, truncates=0, nonsense=0)
    told = [trial.feedback for trial in failed[:9]]
    for module in ("examples", "queues"):
        text = TicketReflector(careful, 1).improve(module, world.first[module], told)
        texts = world.first | {module: text}
        learned = [world.answer(texts, trial.item).score for trial in failed[:9]]
        assert sum(learned) >= 5


def test_the_seed_draws_a_mixed_family() -> None:
    assert drawn(4) == drawn(4)
    assert len({drawn(seed).shape.rules for seed in range(10)}) > 3
    assert {drawn(seed).shape.binary for seed in range(10)} == {True, False}


def curve(*points: tuple[float, float], calls: int = 90) -> Curve:
    return Curve(points=points, used=calls, calls=calls, reflections=1, length=0)


def test_a_curve_tells_score_area_and_when_a_score_was_reached_for_good() -> None:
    found = curve((0, 0.0), (30, 0.6), (60, 0.3), (75, 0.9))
    assert (found.at(29), found.at(30), found.final) == (0.0, 0.6, 0.9)
    assert found.area(90) == pytest.approx((30 * 0.6 + 15 * 0.3 + 15 * 0.9) / 90)
    assert (found.reaches(0.5), found.reaches(0.2), found.reaches(1.0)) == (75, 30, None)


def result(lean: Sequence[Curve], others: Sequence[Curve]) -> Result:
    """Return the result of a family in which all methods but lean found the same."""
    cells = {
        method: Cell(
            method=method,
            budget=90,
            runs=tuple(Run(curve=one, seconds=0.1) for one in (lean if method == LEAN else others)),
        )
        for method in METHODS
    }
    return Result(family="a & b", says="hard", budget=90, cells=cells)


def test_claims_compare_medians_and_count_calls() -> None:
    theirs = [curve((0, 0.0), (80, 0.5)) for _ in range(6)]
    better = [curve((0, 0.0), (30, 0.5), (80, 0.7)) for _ in range(6)]
    late = [curve((0, 0.0), (31, 0.5), (89, 0.4), calls=91) for _ in range(6)]
    kept, missed = check(result(better, theirs)), check(result(late, theirs))
    assert (kept.final, kept.early, kept.within_budget) == ((True, True), (True, True), True)
    assert (missed.final, missed.early) == ((False, False), (False, False))
    assert (kept.cost, missed.cost) == ((True, True), (False, False))
    assert not missed.within_budget
    assert kept.paper.mean == 0
    counts = summary([result(better, theirs), result(late, theirs)])[-1]
    assert counts.split() == ["kept", *["1", "of", "2"] * 6, "2", "of", "2"]


def test_a_score_costs_its_calls_and_all_reflections_of_the_search() -> None:
    cell = result([attrs.evolve(curve((0, 0.0), (30, 0.5), calls=80), reflections=4)], []).cells[
        LEAN
    ]
    assert cell.cost() == 80 + 40
    assert cell.cost(0.5) == 30 + 40
    assert cell.cost(0.6) == math.inf


def test_a_difference_over_seeds_is_said_with_its_spread() -> None:
    close = difference([0.5, 0.6, 0.7, 0.4] * 5, [0.52, 0.59, 0.73, 0.38] * 5)
    assert close.word == "same"
    assert close.low < 0 < close.mean < close.high < 0.02
    found = difference([0.5, 0.6, 0.7, 0.4] * 5, [0.6, 0.65, 0.9, 0.5] * 5)
    assert found.word == "better"
    assert str(found) == f"+0.113 ({found.low:+.3f} to {found.high:+.3f})"
    assert difference([1.0] * 9, [0.5] * 9).word == "worse"


def test_a_row_marks_calls_beyond_the_budget() -> None:
    over = result([curve((0, 0.0))], [curve((0, 0.0), calls=100)])
    rows = {line.split("0.000")[0].strip(): line for line in over.lines()[2:]}
    assert "+10" in rows[DEFAULTS]
    assert "+10" in rows[BEST]
    assert "+" not in rows[LEAN]


def test_the_plot_has_a_panel_for_each_family_and_a_line_for_each_method() -> None:
    found = result([curve((0, 0.0), (30, 1.0))], [curve((0, 0.0))])
    root = fromstring(plot([found, found], 1))
    lines = root.findall("{*}polyline")
    assert len(lines) == 2 * len(METHODS)
    assert [text.text for text in root.iter() if text.get("class") == "name"] == ["a & b"] * 2
    [lean, *_] = [line.get("points", "") for line in lines if line.get("class") == "line lean"]
    heights = [float(point.split(",")[1]) for point in lean.split()]
    assert heights[0] > heights[-1]


def test_the_reflection_model_is_as_poor_as_its_habits() -> None:
    told = ["red wants stop (part0)"]
    careful = Habits(wrong=0, forgets=0, rubbish=0, repeats=0, truncates=0, nonsense=0)
    assert Reflector(careful, ["go"], 1).improve("part0", "Rules:", told) == (
        "Rules:\n- when red then stop"
    )
    assert Reflector(Habits(repeats=1), ["go"], 1).improve("part0", "Rules:", told) == "Rules:"
    wrong = Reflector(Habits(wrong=1, repeats=0, nonsense=0, truncates=0), ["go"], 1)
    assert "- when red then go" in wrong.improve("part0", "Rules:", told)

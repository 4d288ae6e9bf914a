"""Cases of one family answer alike, and count as one case in a verdict."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from optimizers.worlds import Run, config, examples
from promptgraft.evals import Dataset
from promptgraft.evals.gains import Outcome
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.search import HeldOut
from promptgraft.targets.judging import examples_from


def held_out(families: tuple[str, ...] = ()) -> HeldOut:
    """Return twenty examples, of which the winner has five more right and loses none."""
    return HeldOut(
        ids=tuple(f"e{number}" for number in range(20)),
        baseline_scores=(0.0,) * 10 + (1.0,) * 10,
        winner_scores=(1.0,) * 10 + (1.0,) * 10,
        spent_on_cases=0.025,
        families=families,
    )


def test_a_gain_in_one_family_is_that_of_one_case() -> None:
    alone = held_out().gain
    assert alone is not None
    assert (alone.verdict, alone.cases) == (Outcome.IMPROVED, 20)
    together = held_out(("refunds",) * 10 + ("",) * 10).gain
    assert together is not None
    assert (together.verdict, together.cases) == (Outcome.NOT_SHOWN, 11)
    assert together.won == ("family refunds",)
    assert together.mean_gain == pytest.approx(1 / 11)


def test_an_example_with_the_name_of_a_family_is_a_case_of_its_own() -> None:
    scores = HeldOut(
        ids=("family a", "case family a", "b", "c"),
        baseline_scores=(0.0, 0.0, 0.0, 0.0),
        winner_scores=(1.0, 1.0, 0.0, 0.0),
        families=("", "", "a", "a"),
    )
    assert scores.gain is not None
    assert scores.gain.cases == 3
    assert scores.gain.tied == ("family a",)


def test_winners_of_two_runs_are_compared_by_families() -> None:
    first = held_out(("refunds",) * 10 + ("",) * 10)
    better = attrs.evolve(first, winner_scores=(1.0,) * 20)
    worse = attrs.evolve(first, winner_scores=(0.0,) * 10 + (1.0,) * 10)
    shuffled = attrs.evolve(
        worse, ids=worse.ids[::-1], winner_scores=tuple(worse.winner_scores[::-1])
    )
    for other in (worse, shuffled):
        gain = better.gain_over(other)
        assert (gain.cases, gain.won) == (11, ("family refunds",))


@pytest.mark.parametrize(
    ("families", "warnings"),
    [
        (5, ["5 test cases (a family is one) cannot prove a gain; use 6 or more, better 50"]),
        (20, []),
    ],
)
def test_a_plan_counts_families_among_the_test_cases(families: int, warnings: list[str]) -> None:
    held_out = [
        attrs.evolve(example, family=f"f{number % families}")
        for number, example in enumerate(examples(20, first=50))
    ]
    told = Run(config(held_out=held_out)).plan().warnings
    assert [line for line in told if "test case" in line] == warnings


def test_a_family_has_the_mean_of_its_cases_with_two_scores() -> None:
    scores = HeldOut(
        ids=("a", "b", "c"),
        baseline_scores=(0.0, 1.0, None),
        winner_scores=(1.0, 1.0, 0.0),
        families=("f", "f", "f"),
    )
    gain = scores.gain
    assert gain is not None
    assert (gain.mean_before, gain.mean_after, gain.unscored) == (0.5, 1.0, ())


def test_a_kept_column_names_the_family_of_a_case(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(
        "id,input,expected,family\na,x,yes,7\nb,y,no,7\nc,z,no,\n", "utf-8"
    )
    sections = [MarkdownSection(title="Question", key="question", template="Is it $input?")]
    prompt = Prompt(PromptTemplate[object](ns="toy", key="yes", sections=sections))
    kept = examples_from(prompt, Dataset.load(tmp_path / "cases.csv", keep=["family"]))
    assert [example.family for example in kept] == ["7", "7", ""]

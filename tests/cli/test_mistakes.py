"""The messages about 93 mistakes of new users say where, what is expected, what is there, and why.

`PYTHONPATH=tests python -m cli.mistakes` prints the table with the grade of each.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from cli.mistakes.table import MISTAKES
from cli.mistakes.world import Mistake, Told, told_of


def test_the_table_is_graded_at_least_2_9_and_no_message_below_2() -> None:
    grades = {mistake.name: told_of(mistake).grade(mistake) for mistake in MISTAKES}
    poor = {name: grade for name, grade in grades.items() if grade < 3}

    assert len(grades) == len(MISTAKES) >= 93
    assert min(grades.values()) >= 2, poor
    assert fmean(grades.values()) >= 2.9, poor


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_mistake_states_where_and_how_its_message_helps(mistake: Mistake) -> None:
    assert mistake.place
    assert mistake.mend or mistake.expected or mistake.found


def test_a_grade_falls_with_each_thing_that_a_message_does_not_say() -> None:
    mistake = Mistake(name="x", place="a.yaml:3", found="'b'", mend="did you mean `c`?")
    whole = "a.yaml:3: expected something, found 'b' (did you mean `c`?)"

    assert Told(2, (whole,)).grade(mistake) == 3
    assert Told(2, ("a.yaml:3: expected something, found 'b'",)).grade(mistake) == 2
    assert Told(2, ("a.yaml:3", "'b'", "did you mean `c`?")).grade(mistake) == 1
    assert Told(70, (whole,)).grade(mistake) == 0
    assert Told(2, ("Traceback (most recent call last):", whole)).grade(mistake) == 0
    assert Told(2, ()).grade(mistake) == 0

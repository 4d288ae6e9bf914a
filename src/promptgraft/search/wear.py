"""How often held-out cases have judged runs, and what they can still show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import msgspec

from promptgraft.errors import JournalCorruptError
from promptgraft.evals.gains import least_cases
from promptgraft.ground.serde import Json
from promptgraft.ground.text import counted
from promptgraft.overrides.looks import Look
from promptgraft.search.verdict import LEVEL

WORN = 5
"""Runs from which users are warned: by chance, one of as many is better by 5 % / 5."""

_MOST = 0.5  # share of the cases that a run has to have in common with this one


@attrs.frozen(kw_only=True)
class Wear:
    """How often held-out cases have judged runs.

    Attributes:
        cases: the number of cases.
        new: the number of those that no other run has used.
        runs: the runs that most of the cases have judged, this one included.
        least_gain: the smallest mean gain that the cases can show, by cases won and tied, if one
            claim among all these runs may be wrong in 5 % of times; None if they can show none.
        least_gain_when_new: the same for cases that no run has used; None if they can show none.
        cases_when_new: so many new cases show as much as these could at first.
    """

    cases: int
    new: int
    runs: int
    least_gain: float | None
    least_gain_when_new: float | None
    cases_when_new: int

    @property
    def is_worn(self) -> bool:
        """Whether the cases have judged so many runs that users should exchange them."""
        return self.runs >= WORN

    @property
    def line(self) -> str:
        """The wear in words, with what to do."""
        cases, runs = counted(self.cases, "test case"), counted(self.runs, "run")
        if self.least_gain_when_new is None:
            return f"these {cases} have judged {runs}"
        could = f"{self.least_gain_when_new:.2f} when they were new"
        if self.least_gain is None:
            can = f"allowing for all of them, they can show no gain at all ({could})"
        else:
            can = (
                f"allowing for all of them, they can show a mean gain of {self.least_gain:.2f} or "
                f"more ({could})"
            )
        mend = f"exchange them for new ones, or use {self.cases_when_new} cases"
        return f"these {cases} have judged {runs}: {can}; {mend}"


def wear_of(cases: Sequence[str], looks: Iterable[Look], *, run: str) -> Wear | None:
    """Return the wear of cases after a run; None without cases, or if no other run used most.

    Args:
        cases: a digest of each case.
        looks: the looks so far; those of ``run`` itself do not count.
        run: the id of the run that uses the cases now.
    """
    now = set(cases)
    earlier_looks = [look for look in looks if look.run != run]
    used = {case for look in earlier_looks for case in look.cases}
    runs = {look.run for look in earlier_looks if len(now & {*look.cases}) >= _MOST * len(now)}
    if not now or not runs:
        return None
    count, number = len(now), len(runs) + 1
    least_now = least_cases(1 - (1 - LEVEL) / number)
    least_new = least_cases(LEVEL)
    return Wear(
        cases=count,
        new=len(now - used),
        runs=number,
        least_gain=_gain(least_now, count),
        least_gain_when_new=_gain(least_new, count),
        cases_when_new=-(-count * least_now // least_new),
    )


def wear_from_json(recorded: Json) -> Wear | None:
    """Return the wear that a journal keeps.

    Raises:
        JournalCorruptError: the record is another one.
    """
    try:
        return msgspec.convert(recorded, _Recorded).wear
    except msgspec.ValidationError as error:
        raise JournalCorruptError(
            f"the journal's record `wear` is damaged: {error}; restore the journal"
        ) from None


class _Recorded(msgspec.Struct, frozen=True):
    wear: Wear | None


def _gain(least: int, count: int) -> float | None:
    # With so many cases won and all others tied, the sign test and the interval show a gain.
    return least / count if least <= count else None

"""The budget that readers of foreign data share."""

from __future__ import annotations

import pytest

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.work import Unit, WorkBudget

_UNITS: tuple[Unit, ...] = ("cases", "characters", "iterations", "bytes")


def test_work_up_to_the_budget_is_allowed_and_counted() -> None:
    budget = WorkBudget(cases=3)
    budget.spend("cases", 1, "tests.yaml:1")
    budget.spend("cases", 2, "tests.yaml:2")
    assert budget.spent("cases") == 3


def test_work_beyond_the_budget_names_place_limit_amount_and_mend() -> None:
    budget = WorkBudget(cases=1000)
    budget.spend("cases", 200, "a.yaml:1")
    with pytest.raises(DataFormatError) as caught:
        budget.spend("cases", 3_200_000, "b.yaml:7: tests[0].vars", "shorten the lists")
    assert str(caught.value) == (
        "b.yaml:7: tests[0].vars: expected at most 1,000 cases in all, found 3,200,200; "
        "shorten the lists"
    )


def test_refused_work_is_not_spent() -> None:
    budget = WorkBudget(bytes=10)
    with pytest.raises(DataFormatError, match=r"a: expected at most 10 bytes in all, found 11$"):
        budget.spend("bytes", 11, "a")
    budget.spend("bytes", 10, "a")
    assert budget.spent("bytes") == 10


@pytest.mark.parametrize("unit", _UNITS)
def test_each_unit_is_counted_by_itself_and_bounded_by_default(unit: Unit) -> None:
    budget = WorkBudget()
    budget.spend(unit, getattr(budget, unit), "a")
    with pytest.raises(DataFormatError, match=f"{unit} in all"):
        budget.spend(unit, 1, "a")
    assert [name for name in _UNITS if budget.spent(name)] == [unit]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9"])
def test_a_limit_is_a_positive_integer(value: object) -> None:
    with pytest.raises(ConfigError, match=r"WorkBudget\.cases: expected an integer of at least 1"):
        WorkBudget(cases=value)  # type: ignore[arg-type]  # a wrong value, on purpose

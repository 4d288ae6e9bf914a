"""A fixed share of ``make soak``, so that what it found once does not come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from soak.trials import PARTS, carry_out, close

SEED = 1
TRIALS = {"projects": 4, "kills": 2, "journals": 10, "stores": 10, "providers": 15, "grid": 2}


@pytest.fixture(scope="module", autouse=True)
def _ends() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("part", list(PARTS))
def test_hostile_input_is_read_or_refused_with_a_typed_error(part: str) -> None:
    for number in range(TRIALS.get(part, 20)):
        carry_out(part, SEED, number)

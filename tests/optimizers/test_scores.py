"""Scores of large runs are kept packed, and read like a tuple."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.search.population import Pool
from promptgraft.search.scores import Scores, mean_score
from promptgraft.targets.types import Candidate

numbers = st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(st.none() | st.sampled_from((0.0, -0.0, 1.0)) | numbers, max_size=8).map(tuple)


@given(rows, rows)
@settings(max_examples=150, deadline=None)
def test_scores_read_like_a_tuple_of_them(row: tuple[float | None, ...], other: object) -> None:
    scores = Scores(row)
    assert list(scores) == list(row)
    assert [scores[place] for place in range(-len(row), len(row))] == [*row, *row]
    assert scores[1:] == row[1:]
    assert len(scores) == len(row)
    assert bool(scores) == bool(row)
    assert [one in scores for one in (None, 0.0, 1.0, "x")] == [
        one in row for one in (None, 0.0, 1.0, "x")
    ]
    assert (scores == other, other == scores) == (row == other, other == row)
    assert scores == row == scores == Scores(row)
    assert hash(scores) == hash(row)
    assert repr(scores) == repr(row)
    assert pickle.loads(pickle.dumps(scores)) == row
    assert mean_score(scores) == mean_score(row)


def test_a_mean_is_the_same_on_every_python() -> None:
    assert mean_score([0.1] * 10) == 0.09999999999999999  # the mean of `sum` since 3.12 is 0.1


def test_a_place_outside_of_the_scores_is_refused_like_one_outside_of_a_tuple() -> None:
    with pytest.raises(IndexError):
        Scores((0.5, None))[2]


@given(st.data())
def test_no_estimate_is_outside_the_scores_that_were_given(data: st.DataObject) -> None:
    places = data.draw(st.integers(1, 8))
    given_scores = st.lists(st.none() | st.floats(0, 1), min_size=places, max_size=places).filter(
        lambda scores: any(score is not None for score in scores)
    )
    baseline, other = data.draw(given_scores), data.draw(given_scores)
    pool = Pool(ranks=False)
    for scores in (baseline, other):
        pool.add(Candidate(changes={}), scores, [None] * places)

    known = [one for one in (*baseline, *other) if one is not None]
    for index in (0, 1):
        estimate = pool.estimate(index)
        assert estimate is not None
        assert min(known) - 1e-9 <= estimate <= max(known) + 1e-9

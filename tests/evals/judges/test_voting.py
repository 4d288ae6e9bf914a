"""Voting of judges: combined scores, and votes that give none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.judging import ANSWER, CASE, panel
from promptgraft.errors import ConfigError
from promptgraft.evals.judges import Voting
from promptgraft.evals.judges.panel import most_agreed, score_of_votes, weighted_share

ORDERED = (Voting.ALL, Voting.ANY, Voting.MAJORITY)
scores = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
schemes = st.sampled_from(Voting)


# Scheme, threshold, scores (None: no judgement), weights, and the score of the whole.
TABLE = [
    ("all", 1.0, [1.0, 1.0, 1.0], (), 1.0),
    ("all", 1.0, [1.0, 0.5, 1.0], (), 0.5),
    ("all", 0.5, [1.0, 0.5, 1.0], (), 0.5),
    ("all", 1.0, [1.0, None], (), None),
    ("all", 1.0, [0.0, None], (), 0.0),
    ("any", 1.0, [0.0, 1.0], (), 1.0),
    ("any", 1.0, [0.0, 0.5], (), 0.5),
    ("any", 1.0, [0.0, None], (), None),
    ("any", 1.0, [1.0, None], (), 1.0),
    ("majority", 1.0, [1.0, 1.0, 0.0], (), 1.0),
    ("majority", 1.0, [1.0, 0.0, 0.0], (), 0.0),
    ("majority", 1.0, [1.0, 0.0], (), 0.0),
    ("majority", 0.5, [1.0, 0.5, 0.0], (), 0.5),
    ("majority", 0.5, [1.0, 1.0, 0.5, 0.0], (), 0.5),
    ("majority", 1.0, [1.0, 1.0, None], (), 1.0),
    ("majority", 1.0, [0.0, 0.0, None], (), 0.0),
    ("majority", 1.0, [1.0, 0.0, None], (), None),
    ("majority", 1.0, [1.0, None, None], (), None),
    ("mean", 0.5, [1.0, 0.5, 0.0], (), 0.5),
    ("mean", 0.7, [1.0, 1.0, 0.0], (), 2 / 3),
    ("mean", 0.1, [1.0, 1.0, None], (), None),
    ("weighted", 0.9, [1.0, 1.0, 0.0], (3, 6, 1), 0.9),
    ("weighted", 0.9, [1.0, 1.0, 0.0], (0.3, 0.6, 0.1), 0.9),
    ("weighted", 0.5, [1.0, 0.0], (1, 3), 0.25),
    ("weighted", 0.1, [1.0, None], (9, 1), None),
    ("weighted majority", 1.0, [1.0, 0.0, 0.0], (3, 1, 1), 1.0),
    ("weighted majority", 1.0, [1.0, 0.0, 0.0], (2, 1, 1), 0.0),
    ("weighted majority", 0.5, [1.0, 0.5, 0.0], (2, 1, 1), 0.5),
    ("weighted majority", 1.0, [1.0, 1.0, 0.0], (0.1, 0.2, 0.3), 0.0),
    ("weighted majority", 1.0, [1.0, None, None], (3, 1, 1), 1.0),
    ("weighted majority", 1.0, [None, 1.0, 1.0], (2, 1, 1), None),
    ("weighted majority", 1.0, [None, 0.0, 0.0], (2, 1, 1), 0.0),
]


@pytest.mark.parametrize(("voting", "threshold", "votes", "weights", "score"), TABLE)
def test_the_verdict_is_what_the_votes_say(
    voting: str,
    threshold: float,
    votes: list[float | None],
    weights: tuple[float, ...],
    score: float | None,
) -> None:
    metric = panel(votes, voting=voting, threshold=threshold, weights=weights)
    verdict = metric.judge(CASE, ANSWER)
    assert verdict.score == score
    assert verdict.passed == (None if score is None else score >= threshold)


@pytest.mark.parametrize("voting", Voting)
def test_without_any_judgement_there_is_no_verdict_even_where_everything_passes(
    voting: Voting,
) -> None:
    weights = (1.0, 1.0) if "weighted" in voting else ()
    verdict = panel([None, None], voting=voting, threshold=0.0, weights=weights).judge(CASE, ANSWER)
    assert (verdict.score, verdict.passed) == (None, None)
    assert verdict.reason.count("the judge's replies are void") == 2


@given(schemes, st.lists(scores, min_size=1, max_size=6), scores, st.data())
def test_the_score_lies_within_the_scores_and_never_falls_when_one_rises(
    voting: Voting, votes: list[float], threshold: float, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(votes), max_size=len(votes)))
    place = data.draw(st.integers(0, len(votes) - 1))
    raised = [*votes]
    raised[place] = data.draw(st.sampled_from([vote / 20 for vote in range(21)]))
    before, after = (
        score_of_votes(voting, found, threshold=threshold, weights=weights)
        for found in (votes, raised)
    )
    assert before is not None
    assert after is not None
    assert min(votes) <= before <= max(votes)
    assert (after >= before) if raised[place] >= votes[place] else (after <= before)


@given(st.lists(scores, min_size=1, max_size=7), scores)
def test_the_schemes_count_votes(votes: list[float], threshold: float) -> None:
    count = sum(vote >= threshold for vote in votes)
    needed = {
        Voting.ALL: len(votes),
        Voting.ANY: 1,
        Voting.MAJORITY: len(votes) // 2 + 1,
    }
    for voting, least in needed.items():
        score = score_of_votes(voting, votes, threshold=threshold)
        assert score is not None
        assert (score >= threshold) == (count >= least)


@given(schemes, st.lists(st.none() | scores, min_size=1, max_size=6), scores, st.data())
def test_a_missing_vote_could_never_have_changed_the_verdict(
    voting: Voting, votes: list[float | None], threshold: float, data: st.DataObject
) -> None:
    weights = [1.0] * len(votes)
    score = score_of_votes(voting, votes, threshold=threshold, weights=weights)
    filled = [data.draw(scores) if vote is None else vote for vote in votes]
    whole = score_of_votes(voting, filled, threshold=threshold, weights=weights)
    assert whole is not None
    if score is None:
        assert None in votes
    else:
        assert (score >= threshold) == (whole >= threshold)


@given(st.lists(scores, min_size=1, max_size=7))
def test_the_order_of_judges_does_not_matter(votes: list[float]) -> None:
    backwards = votes[::-1]
    for voting in (*ORDERED, Voting.MEAN):
        assert score_of_votes(voting, votes, threshold=0.5) == score_of_votes(
            voting, backwards, threshold=0.5
        )


@pytest.mark.parametrize(
    ("found", "position"),
    [([0.3], 0), ([1, 0], 1), ([0, 1], 0), ([0, 1, 1], 1), ([1, 0.5, 0], 1), ([1, 1, 0, 0], 2)],
)
def test_of_several_samples_the_first_of_the_score_that_most_reach_speaks(
    found: list[float], position: int
) -> None:
    assert most_agreed(found) == position


def test_weights_are_decimal_numbers_as_they_are_written() -> None:
    assert weighted_share([1, 1, 0], [0.3, 0.6, 0.1]) == 0.9
    assert weighted_share([0.1, 0.1, 0.1], [1, 1, 1]) == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples: expected an integer of at least 1, found 0"),
        ({"weights": (1, 2)}, "weights: majority voting takes none; set voting to `weighted`"),
        ({"voting": "weighted"}, "weights: expected a number above 0 for each of 2 judges"),
        ({"voting": "weighted", "weights": (1, 0)}, "found [1, 0]"),
        ({"voting": "weighted", "weights": (1, math.nan)}, "found [1, nan]"),
        ({"voting": "weighted", "weights": (1,)}, "for each of 2 judges, found [1]"),
        ({"threshold": 1.5}, "threshold: expected a number from 0 to 1, found 1.5"),
        ({"voting": "some"}, "voting: expected one of `all`, `any`"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        panel([1.0, 1.0], **options)
    assert message in str(caught.value)


def test_a_panel_needs_a_judge() -> None:
    with pytest.raises(ConfigError, match="judges: expected at least one adapter, found none"):
        panel([])

"""Where something stands in a run: one value, one text, one parser."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from promptgraft.errors import DataFormatError
from promptgraft.search.place import LEGS, QUESTIONS, Phase, Place

COUNTS = st.integers(0, 10**6)
STEPS = st.builds(Place.of_step, COUNTS, COUNTS)
PLACES = st.one_of(
    st.just(Place(phase=Phase.BASELINE)),
    STEPS,
    *(
        st.builds(lambda step, count, phase=phase: step.at(phase, count=count), STEPS, COUNTS)
        for phase in (Phase.PARENT, Phase.CHILD, Phase.REFLECT, Phase.MOVE, Phase.IDLE)
    ),
    *(
        st.builds(
            lambda step, leg, phase=phase: step.at(phase, leg=leg),
            STEPS,
            st.sampled_from(LEGS[phase]),
        )
        for phase in (Phase.PARETO, Phase.MERGE)
    ),
    st.builds(
        lambda one, length: Place(phase=Phase.FINAL, candidate=one, count=length), *[COUNTS] * 2
    ),
    st.builds(
        lambda one, count: Place(phase=Phase.HELD_OUT, candidate=one, count=count), *[COUNTS] * 2
    ),
    st.builds(
        lambda step, one, leg, count: replace(
            step.at(Phase.SHORTEN, leg=leg, count=count), candidate=one
        ),
        STEPS,
        COUNTS,
        st.sampled_from(LEGS[Phase.SHORTEN]),
        COUNTS,
    ),
)
ABOUT = st.sampled_from(["case 7", "case%2F7/4.1.2", "section rules/1", "x/repair"])
PLACES |= st.one_of(
    st.just(Place(phase=Phase.INITIAL)),
    *(
        st.builds(lambda step, phase=phase: Place(phase=phase, step=step), COUNTS)
        for phase in (Phase.ROUND, Phase.TRAIN, Phase.TRY)
    ),
    *(
        st.builds(
            lambda step, leg, phase=phase: Place(phase=phase, step=step, leg=leg), COUNTS, ABOUT
        )
        for phase in (Phase.BACKWARD, Phase.AGGREGATE, Phase.OPTIMIZE)
    ),
    st.builds(
        lambda step, leg, count: Place(phase=Phase.VALIDATE, step=step, leg=leg, count=count),
        COUNTS,
        st.sampled_from(["parent", "child"]),
        COUNTS,
    ),
)
WORDS = st.sampled_from(
    [*Phase, "again", "race", "first", "best", "winner", "0", "1", "07", "²", ""]
)


@given(PLACES)
def test_a_place_is_what_its_text_is_parsed_as(place: Place) -> None:
    assert Place.parse(str(place)) == place
    assert Place.of_rollout(f"{place}/7") == (
        None if place.phase in (Phase.STEP, Phase.ROUND, *QUESTIONS) else place
    )


@given(st.lists(WORDS, max_size=6).map("/".join))
def test_a_text_that_is_parsed_is_the_text_of_its_place(text: str) -> None:
    with contextlib.suppress(DataFormatError):
        assert str(Place.parse(text)) == text


def test_a_text_of_no_place_is_refused_with_what_a_place_looks_like() -> None:
    said = "expected a place in a run, such as `step/3/child`, found 'step/03/child'"
    with pytest.raises(DataFormatError, match=said):
        Place.parse("step/03/child")


@pytest.mark.parametrize(
    "text",
    [
        "baseline",
        "step/3/parent",
        "step/3/2/again/1/child",
        "step/3/2/reflect/9",
        "step/3/pareto/first",
        "step/3/merge/race/best",
        "step/3/idle/12",
        "step/3/shorten/2/5/line",
        "step/3/shorten/4/77/race/first",
        "final/4/7",
        "held-out/4/1",
        "held-out/4",
    ],
)
def test_every_place_of_a_run_has_the_text_that_journals_have(text: str) -> None:
    assert str(Place.parse(text)) == text


@pytest.mark.parametrize(
    "key", ["base", "baseline/0/spent/0", "step/1/reflect/0", "step/1/2", "step/1/child/0/spent/1"]
)
def test_keys_of_other_answers_are_no_rollouts(key: str) -> None:
    assert Place.of_rollout(key) is None

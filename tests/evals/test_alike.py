"""Cases that ask nearly the same: found exactly, whatever the data."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.evals.alike import alike
from promptgraft.evals.dataset import Dataset


def data(*questions: object) -> Dataset:
    """Cases q0, q1, … with these inputs."""
    return Dataset.of(
        [{"id": f"q{n}", "input": text, "expected": "x"} for n, text in enumerate(questions)]
    )


LONG = "the lamp in the hall of the second floor has been out since the storm of last monday"


@pytest.mark.parametrize(
    ("first", "second", "are_alike"),
    [
        ("How do I reset my password?", "how do I reset, my password", True),
        (LONG, f"{LONG} evening", True),
        (LONG, LONG.replace("hall", "yard").replace("storm", "feast"), False),
        ("What is 12 plus 13?", "What is 12 plus 14?", False),
        ("what is the capital of France", "what is the capital of Spain", False),
        ("请问 如何重置我的登录密码", "请问如何重置我的登录密码", True),
        ("请问如何重置密码", "请问如何注销账户", False),
        ({"mail": LONG, "year": 2020}, {"year": 2020, "mail": LONG + " now"}, True),
        ("?", "!", False),
        ({"year": 17}, {"year": 18}, False),
    ],
)
def test_wordings_of_one_question_are_alike_and_other_questions_are_not(
    first: object, second: object, are_alike: bool
) -> None:
    assert alike(data(first, second)) == ({"q1": "q0"} if are_alike else {})


def test_a_text_that_every_question_quotes_makes_no_questions_alike() -> None:
    handbook = " ".join(f"rule{n}" for n in range(200))
    questions = [f"{handbook}\n\nWhat about topic{n} and its part{n}?" for n in range(20)]
    assert alike(data(*questions)) == {}
    of_one_text = [f"{handbook}\n\nWhat about topic{n}?" for n in range(2)]
    others = [" ".join(f"word{n}of{m}" for m in range(30)) for n in range(20)]
    assert alike(data(*others, *of_one_text)) == {"q21": "q20"}


def test_a_group_is_named_by_its_first_case() -> None:
    assert alike(data(LONG, f"{LONG} a", "else", f"{LONG} b")) == {"q1": "q0", "q3": "q0"}


@given(st.integers(0, 2**32))
def test_the_join_finds_what_comparing_all_pairs_finds(seed: int) -> None:
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(rng.randrange(2, 12)):
        words = rng.choice(texts).split() if texts and rng.random() < 0.6 else []
        words = words or [rng.choice("abcdefgh") for _ in range(rng.randrange(1, 25))]
        if rng.random() < 0.7:
            words[rng.randrange(len(words))] = rng.choice("xyz")
        texts.append(" ".join(words))
    runs = [
        {tuple(words[n : n + 3]) for n in range(max(1, len(words) - 2))}
        for words in (text.split() for text in texts)
    ]
    counts: dict[tuple[str, ...], int] = {}
    for own in runs:
        for run in own:
            counts[run] = counts.get(run, 0) + 1
    told = [{run for run in own if counts[run] <= max(5, 0.2 * len(texts))} for own in runs]
    having_twins = {
        f"q{second}"
        for second, own in enumerate(told)
        for other in told[:second]
        if own and len(own & other) >= 0.8 * len(own | other)
    }
    cases = Dataset.of(
        [{"id": f"q{n}", "input": text, "expected": str(n)} for n, text in enumerate(texts)],
    )
    assert set(alike(cases)) == having_twins

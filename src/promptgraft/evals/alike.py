"""Cases whose questions have nearly the same words, such as paraphrases and questions on one text.

A set join by prefixes (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007): exact, and
without comparing all pairs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from promptgraft.evals.dataset import asked_by
from promptgraft.evals.types import Case
from promptgraft.ground.serde import Json

_SHARE = 0.8
"""Jaccard similarity of shingles from which two questions are alike."""
_SHINGLE = 3
_BOILERPLATE = 0.2
"""Share of the cases from which a shingle is part of a form that all fill in."""
_FEW = 5
# Scripts without spaces between words: each character counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


def alike(cases: Iterable[Case]) -> dict[str, str]:
    """Return for each case that asks nearly the same as an earlier one the id of that one.

    Questions are nearly the same if four fifths of their runs of three words are. Runs that more
    than a fifth of the cases share (a form, a handbook in every question) do not count, and
    neither do letter case, white space and punctuation. A question with none left is like no other.
    """
    numbers: dict[tuple[str, ...], int] = {}
    shingles = {
        case.id: frozenset(numbers.setdefault(run, len(numbers)) for run in _shingles(case))
        for case in cases
    }
    frequency = Counter(shingle for of_case in shingles.values() for shingle in of_case)
    most = max(_FEW, _BOILERPLATE * len(shingles))
    distinctive = {
        id_: frozenset(shingle for shingle in of_case if frequency[shingle] <= most)
        for id_, of_case in shingles.items()
    }
    order = {id_: number for number, id_ in enumerate(distinctive)}
    index: dict[int, list[str]] = {}
    twins: dict[str, str] = {}
    for id_, terms in distinctive.items():
        # Two sets that are alike share one of so many of their rarest shingles.
        rarest = sorted(terms, key=lambda shingle: frequency[shingle] * len(numbers) + shingle)
        prefix = rarest[: len(terms) - math.ceil(_SHARE * len(terms)) + 1] if terms else []
        near = {earlier for shingle in prefix for earlier in index.get(shingle, ())}
        for earlier in sorted(near, key=order.__getitem__):
            if len(terms & distinctive[earlier]) >= _SHARE * len(terms | distinctive[earlier]):
                twins[id_] = twins.get(earlier, earlier)
                break
        for shingle in prefix:
            index.setdefault(shingle, []).append(id_)
    return twins


def _shingles(case: Case) -> Iterator[tuple[str, ...]]:
    """Yield the runs of three words of a question; all of its words if they are fewer."""
    words = _WORD.findall(" ".join(_texts(asked_by(case))).casefold())
    for start in range(max(1, len(words) - _SHINGLE + 1)):
        if run := tuple(words[start : start + _SHINGLE]):
            yield run


def _texts(question: Json) -> Iterator[str]:
    if isinstance(question, dict):
        for value in question.values():
            yield from _texts(value)
    elif isinstance(question, list):
        for value in question:
            yield from _texts(value)
    elif question is not None:
        yield str(question)

"""What simple methods learn from the same labelled texts: neighbours and a linear classifier.

Texts are weighed by TF-IDF. Nothing is tuned: ``k`` and the regularisation are fixed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from search.texts import Text, TextTask

Matrix = NDArray[np.float64]

_WORD = re.compile(r"[^\W\d_]{2,}")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(r"[A-Z]\w*[a-z]\w*")
_RIDGE = 1.0


class Learner(Protocol):
    """Learns from rows of features; returns how much each new row speaks for each label."""

    def scores(self, known: Matrix, labels: Matrix, new: Matrix) -> Matrix: ...


@attrs.frozen
class Neighbours:
    """The sum of the cosines of the ``k`` nearest, for the labels that they have."""

    k: int

    def scores(self, known: Matrix, labels: Matrix, new: Matrix) -> Matrix:
        near = new @ known.T
        kept = np.zeros_like(near)
        best = np.argsort(-near, axis=1, kind="stable")[:, : self.k]
        np.put_along_axis(kept, best, np.take_along_axis(near, best, axis=1), axis=1)
        scores: Matrix = kept @ labels
        return scores


@attrs.frozen
class Linear:
    """Ridge regression on +1 and -1, one label against the rest, with an intercept."""

    def scores(self, known: Matrix, labels: Matrix, new: Matrix) -> Matrix:
        centre, wanted = known.mean(axis=0), 2 * labels - 1
        rows = known - centre
        kernel = rows @ rows.T + _RIDGE * np.eye(len(rows))
        weights = np.linalg.solve(kernel, wanted - wanted.mean(axis=0))
        scores: Matrix = (new - centre) @ rows.T @ weights + wanted.mean(axis=0)
        return scores


def answers(
    task: TextTask, learner: Learner, known: Sequence[Text], new: Sequence[str]
) -> list[str]:
    """Return what a learner answers to new texts after it has been shown known ones.

    Where the answer is a label, a text is its words. Where it is a name in the text, each word
    with a capital letter is a candidate, known by the words around it; the learner tells right
    candidates from wrong ones, and the surest of a text is the answer.
    """
    if task.labels:
        names = sorted({text.answer for text in known})
        labels = np.array([[text.answer == name for name in names] for text in known], float)
        rows = _weighed([_words(text.text) for text in known], [_words(text) for text in new])
        return [names[row.argmax()] for row in learner.scores(rows[0], labels, rows[1])]
    shown = [(text, *candidate) for text in known for candidate in _candidates(text.text)]
    asked = [_candidates(text) for text in new]
    right = np.array([[float(name == text.answer), float(name != text.answer)]
                      for text, name, _ in shown])  # fmt: skip
    rows = _weighed(
        [features for _, _, features in shown],
        [features for candidates in asked for _, features in candidates],
    )
    both = learner.scores(rows[0], right, rows[1])
    sure = iter(both[:, 0] - both[:, 1])
    return [
        max(((next(sure), -place, name) for place, (name, _) in enumerate(candidates)),
            default=(0.0, 0, ""))[2]
        for candidates in asked
    ]  # fmt: skip


def share_right(
    task: TextTask, learner: Learner, known: Sequence[Text], held_out: Sequence[Text]
) -> float:
    """Return the share of held-out texts that a learner answers rightly."""
    given = answers(task, learner, known, [text.text for text in held_out])
    right = [one == text.answer for one, text in zip(given, held_out, strict=True)]
    return sum(right) / len(right)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.replace("_", " ").lower())


def _candidates(text: str) -> list[tuple[str, list[str]]]:
    """Return the names in a text, each time that they stand there, with the words around."""
    tokens = ["", "", *_TOKEN.findall(text), "", ""]
    found: list[tuple[str, list[str]]] = []
    for place, token in enumerate(tokens):
        if _NAME.fullmatch(token):
            around = (-2, -1, 1, 2)
            near = [f"{step:+}:{tokens[place + step].lower()}" for step in around]
            found.append((token, [*near, f"ends:{token[-5:]}", f"place:{min(len(found), 5)}"]))
    return found


def _weighed(known: Sequence[Sequence[str]], new: Sequence[Sequence[str]]) -> tuple[Matrix, Matrix]:
    """Return rows of TF-IDF, of length 1; frequencies are those of the known texts alone."""
    among = Counter(word for words in known for word in set(words))
    place = {word: number for number, word in enumerate(sorted(among))}
    rarity = np.array([np.log((1 + len(known)) / (1 + among[word])) + 1 for word in sorted(among)])

    def rows(texts: Sequence[Sequence[str]]) -> Matrix:
        made = np.zeros((len(texts), len(place)))
        for row, words in enumerate(texts):
            for word, count in Counter(words).items():
                if word in place:
                    made[row, place[word]] = 1 + np.log(count)
        made *= rarity
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        weighed: Matrix = made / np.where(lengths, lengths, 1)
        return weighed

    return rows(known), rows(new)

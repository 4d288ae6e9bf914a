"""Which of the lines that a proposal has added have helped, as far as a minibatch tells.

A line is about the failures that it shares words with, in input or feedback. It has helped if one
of these got better; what other lines of the same proposal did there is not told apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.algorithms.gepa.redundant import Line, lines_of
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Records
from promptgraft.search.proposals import Change
from promptgraft.targets.types import Module
from promptgraft.text import folded_words

_CHANCE = 0.15
"""Share of the range of scores that an answer may gain by chance."""
_TOLD_APART = 0.5
"""Share of a minibatch that may have a word which tells what a line is about."""


@attrs.frozen(kw_only=True)
class AddedLine:
    """A line that is about failures of a minibatch.

    Attributes:
        module: the part that it was put into.
        text: the line, with those that belong to it.
        key: what it says.
        place: the failure that it is most about, by its place in the minibatch.
        enough: the score there with which it helps.
        helped: whether a failure that it is about got better.
    """

    module: Module
    text: str
    key: str
    place: int
    enough: float
    helped: bool


def added_lines(
    kit: Kit, changes: Sequence[Change], before: Records, after: Records, *, perfect: float
) -> Iterator[AddedLine]:
    """Yield the lines that changes have added, where they are about a failure.

    Args:
        kit: what the search works with.
        changes: those of a proposal.
        before: the parent's rollouts on its minibatch.
        after: the child's.
        perfect: a score that leaves nothing to learn.
    """
    pairs = [
        (kit.scorer.score(one), kit.scorer.score(two))
        for one, two in zip(before, after, strict=True)
    ]
    seen = [score for pair in pairs for score in pair if score is not None]
    chance = _CHANCE * (max(seen) - min(seen)) if seen else 0.0
    weights = _weights(before)
    for change, rows, line in _added(kit, changes):
        near = [math.fsum(words.get(word, 0.0) for word in {*line.words}) for words in weights]
        failed = [
            (place, lowest, score)
            for place, (lowest, score) in enumerate(pairs)
            if near[place] and lowest is not None and lowest < perfect and score is not None
        ]
        if failed:
            place, lowest, _ = max(failed, key=lambda one: near[one[0]])
            yield AddedLine(
                module=change.module,
                text="\n".join(rows[number] for number in line.places),
                key=line.key,
                place=place,
                enough=lowest + chance,
                helped=any(score > lowest + chance for _, lowest, score in failed),
            )


def _added(kit: Kit, changes: Sequence[Change]) -> Iterator[tuple[Change, list[str], Line]]:
    for change in changes:
        before, module = change.before, change.module
        if not module.is_example and not before.as_json:
            old = {line.key for line in lines_of(before.text)}
            text = kit.target.text(module, change.candidate)
            rows = text.split("\n")
            for line in lines_of(text, before.placeholders):
                if line.key not in old:
                    yield change, rows, line


def _weights(records: Records) -> list[Mapping[str, float]]:
    """Return the words of each rollout that tell it from the others, the rarer the heavier."""
    said = [
        {*folded_words(f"{one.inputs_repr} {one.feedback.feedback if one.feedback else ''}")}
        for one in records
    ]
    counts, most = Counter(word for words in said for word in words), _TOLD_APART * len(said)
    return [
        {
            word: math.log((1 + len(said)) / counts[word])
            for word in words
            if counts[word] <= max(1, most)
        }
        for words in said
    ]

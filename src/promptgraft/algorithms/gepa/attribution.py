"""Credit assignment: which lines of a proposal helped on its minibatch.

A line concerns the failures whose input or feedback shares rare words with it. It helped if the
score of one of them rose, or if its score is the same and the feedback complains of something else
now: of what an answer that is right or wrong as a whole still lacks, scores tell nothing. Effects
of other lines of the same proposal are not separated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.algorithms.gepa.redundant import Line, lines_of
from promptgraft.search.acceptance import Change
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Records
from promptgraft.targets.types import Module, RolloutRecord
from promptgraft.text import folded_words

_CHANCE = 0.15
"""Share of the score range below which a gain counts as chance."""
_TOLD_APART = 0.5
"""Words that occur in more of the minibatch than this share identify no failure."""
_GENERIC = 0.1
"""Words that occur in more of all feedback than this share identify no complaint."""
_SELDOM = 3
"""How many times a word may occur in feedback before it can be generic."""


@attrs.frozen(kw_only=True)
class AddedLine:
    """An added line that concerns a failure of the minibatch.

    Attributes:
        module: the part it was added to.
        text: the line, with its continuation lines.
        key: its normalized content; equal for repetitions.
        words: its words, without case and accents.
        place: index in the minibatch of the failure that it concerns most.
        enough: the score that must be exceeded there for the line to count as helpful.
        helped: whether the score of any failure that it concerns rose, or its feedback moved on.
    """

    module: Module
    text: str
    key: str
    words: Sequence[str]
    place: int
    enough: float
    helped: bool


@attrs.define
class Complaints:
    """Learns which words of feedback identify no complaint, because much feedback has them.

    Attributes:
        generic: these words, without case and accents.
    """

    generic: frozenset[str] = attrs.field(default=frozenset(), init=False)
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _total: int = attrs.field(default=0, init=False)

    def learn(self, records: Iterable[RolloutRecord]) -> None:
        """Count the words of some feedback."""
        said = [_told(record) for record in records if record.feedback is not None]
        self._total += len(said)
        for words in said:
            self._counts.update(words)
        most = max(_SELDOM, _GENERIC * self._total)
        # Other words have not become more frequent.
        self.generic = frozenset(
            word for word in self.generic.union(*said) if self._counts[word] > most
        )


def has_moved_on(
    words: Collection[str],
    before: RolloutRecord,
    after: RolloutRecord,
    *,
    generic: Collection[str],
) -> bool:
    """Return whether feedback no longer complains of what a line addresses, but of something else.

    Args:
        words: the words of the line.
        before: a rollout without the line.
        after: a rollout with the line on the same example.
        generic: words that identify no complaint.
    """
    complaint = _told(before).intersection(words).difference(generic)
    now = _told(after).difference(generic)
    return bool(complaint) and bool(now) and complaint.isdisjoint(now)


def _told(record: RolloutRecord) -> set[str]:
    return set(folded_words(record.feedback.feedback)) if record.feedback else set()


def added_lines(
    kit: Kit,
    changes: Sequence[Change],
    before: Records,
    after: Records,
    *,
    perfect: float,
    generic: Collection[str],
) -> Iterator[AddedLine]:
    """Yield the added lines that concern a failure.

    Args:
        kit: what the search works with.
        changes: the changes of one proposal.
        before: the parent's rollouts on the minibatch.
        after: the child's rollouts, in the same order.
        perfect: the score at which there is nothing left to learn.
        generic: words of feedback that identify no complaint.
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
                words=line.words,
                place=place,
                enough=lowest + chance,
                helped=any(
                    score > lowest + chance
                    or (
                        score == lowest
                        and has_moved_on(line.words, before[at], after[at], generic=generic)
                    )
                    for at, lowest, score in failed
                ),
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
    """Return the distinguishing words of each rollout with their inverse document frequencies."""
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

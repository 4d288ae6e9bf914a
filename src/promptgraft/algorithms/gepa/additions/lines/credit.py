"""Credit assignment: which lines helped on a minibatch, and which address its failures.

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

from promptgraft.ground.text import folded_words
from promptgraft.search.acceptance import Change
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Records
from promptgraft.search.scores import Scorer
from promptgraft.targets.text_lines import Line, inverse_frequencies, is_said, lines_of
from promptgraft.targets.types import Module, RolloutRecord

_CHANCE = 0.15
"""Share of the score range below which a gain counts as chance."""
_TOLD_APART = 0.5
"""Words that occur in more of the minibatch than this share identify no failure."""
_STOP_WORD_SHARE = 0.1
"""Words that occur in more of all feedback than this share identify no complaint."""
_SELDOM = 3
"""How many times a word may occur in feedback before it can be one of the stop words."""
_SAME = 0.5
"""Share of words that a complaint and a line have in common if the line addresses it."""

Place = tuple[Module, str]
"""A line in a part: the part, and the key of the line."""


@attrs.frozen(kw_only=True)
class Rule:
    """A line that a child has and its parent lacks.

    Attributes:
        module: the part it was added to.
        text: the line, with its continuation lines.
        key: its normalized content; equal for repetitions.
        label: what it defines; empty if it is no definition.
        replaces: the key of the definition that it replaces; empty if there was none.
        is_rewording: whether it says what a line of the parent said that the child lacks.
    """

    module: Module
    text: str
    key: str
    label: str = ""
    replaces: str = ""
    is_rewording: bool = False

    @property
    def place(self) -> Place:
        """The line in its part."""
        return self.module, self.key


@attrs.frozen(kw_only=True)
class AddedLine:
    """An added line that concerns a failure of the minibatch.

    Attributes:
        rule: the line.
        words: its words, without case and accents.
        failure: index in the minibatch of the failure that it concerns most.
        enough: the score that must be exceeded there for the line to count as helpful.
        helped: whether the score of any failure that it concerns rose, or its feedback moved on.
    """

    rule: Rule
    words: Sequence[str]
    failure: int
    enough: float
    helped: bool


@attrs.define
class FeedbackTerms:
    """Learns the stop words of feedback: those that much of it has.

    Attributes:
        stop_words: these words, without case and accents.
    """

    stop_words: frozenset[str] = attrs.field(default=frozenset(), init=False)
    _counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _total: int = attrs.field(default=0, init=False)

    def learn(self, records: Iterable[RolloutRecord]) -> None:
        """Count the words of some feedback."""
        complaints = [feedback_words(record) for record in records if record.feedback is not None]
        self._total += len(complaints)
        for words in complaints:
            self._counts.update(words)
        most = max(_SELDOM, _STOP_WORD_SHARE * self._total)
        # Other words have not become more frequent.
        self.stop_words = frozenset(
            word for word in self.stop_words.union(*complaints) if self._counts[word] > most
        )


@attrs.frozen
class Effect:
    """How two candidates differ on one example: the first failed, the second has more lines.

    Attributes:
        complaints: the words of their feedback that identify a complaint.
    """

    scores: tuple[float, float]
    complaints: tuple[frozenset[str], frozenset[str]]

    @classmethod
    def of(
        cls,
        scorer: Scorer,
        before: RolloutRecord,
        after: RolloutRecord,
        *,
        stop_words: frozenset[str],
    ) -> Effect | None:
        """Return the effect of the lines; None without both scores.

        Args:
            scorer: scores rollouts.
            before: the rollout without the lines.
            after: the rollout with them, on the same example.
            stop_words: words that are too frequent to identify a complaint.
        """
        scores = scorer.score(before), scorer.score(after)
        if scores[0] is None or scores[1] is None:
            return None
        old, new = (feedback_words(record) - stop_words for record in (before, after))
        return cls((scores[0], scores[1]), (old, new))

    def is_help_of(self, words: Collection[str], *, enough: float) -> bool:
        """Return whether a line helped: the score is above ``enough``, or feedback moved on.

        It has moved on if it no longer complains of what the line addresses, but of something
        else, at the same score.
        """
        lowest, score = self.scores
        old, new = self.complaints
        addressed = old.intersection(words)
        # Where answers are right or wrong as a whole, only the feedback shows that a line works.
        moved_on = bool(addressed) and bool(new) and addressed.isdisjoint(new)
        return score > enough or (score == lowest and moved_on)


def feedback_words(record: RolloutRecord) -> frozenset[str]:
    """Return the words of feedback; those that are no stop words identify a complaint."""
    return frozenset(folded_words(record.feedback.feedback) if record.feedback else ())


def added_lines(
    kit: Kit,
    changes: Sequence[Change],
    before: Records,
    after: Records,
    *,
    stop_words: frozenset[str],
) -> Iterator[AddedLine]:
    """Yield the added lines that concern a failure.

    Args:
        kit: what the search works with.
        changes: the changes of one proposal.
        before: the parent's rollouts on the minibatch.
        after: the child's rollouts, in the same order.
        stop_words: words that are too frequent to identify a complaint.
    """
    pairs = list(zip(before, after, strict=True))
    effects = [Effect.of(kit.scorer, *pair, stop_words=stop_words) for pair in pairs]
    answers = map(kit.scorer.score, (*before, *after))
    scores = [score for score in answers if score is not None]
    chance = _CHANCE * (max(scores) - min(scores)) if scores else 0.0
    weights = _weights(before)
    for rule, line in _added(kit, changes):
        near = [math.fsum(words.get(word, 0.0) for word in {*line.words}) for words in weights]
        failed = [
            (place, effect)
            for place, effect in enumerate(effects)
            if near[place] and effect is not None and effect.scores[0] < kit.scorer.perfect
        ]
        if failed:
            place, most = max(failed, key=lambda failure: near[failure[0]])
            yield AddedLine(
                rule=rule,
                words=line.words,
                failure=place,
                enough=most.scores[0] + chance,
                helped=any(
                    effect.is_help_of(line.words, enough=effect.scores[0] + chance)
                    for _, effect in failed
                ),
            )


def _added(kit: Kit, changes: Sequence[Change]) -> Iterator[tuple[Rule, Line]]:
    """Yield each added line."""
    for change in changes:
        before, module = change.before, change.module
        if not module.is_example and not before.as_json:
            lines, text = lines_of(before.text), kit.target.text(module, change.candidate)
            defined = {line.label: line.key for line in lines if line.label}
            rows, lines_there = text.split("\n"), lines_of(text, before.placeholders)
            keys, keys_there = ({line.key for line in each} for each in (lines, lines_there))
            gone = [line for line in lines if line.key not in keys_there]
            for line in lines_there:
                if line.key not in keys:
                    rule = Rule(
                        module=module,
                        text="\n".join(rows[number] for number in line.places),
                        key=line.key,
                        label=line.label,
                        replaces=defined.get(line.label, ""),
                        is_rewording=bool(gone) and is_said(line, gone),
                    )
                    yield rule, line


def _weights(records: Records) -> list[Mapping[str, float]]:
    """Return the distinguishing words of each rollout with their inverse document frequencies."""
    all_words = [
        feedback_words(record).union(folded_words(record.inputs_repr)) for record in records
    ]
    weights = inverse_frequencies(all_words)
    # Frequent words tell nothing apart.
    least = math.log((1 + len(all_words)) / max(1, _TOLD_APART * len(all_words)))
    return [
        {word: weights[word] for word in words if weights[word] >= least} for words in all_words
    ]


def telling_words(lines: Mapping[Module, Sequence[Line]]) -> Mapping[Place, frozenset[str]]:
    """Return the words of each line of a candidate, without those that most lines have."""
    every = {
        (module, line.key): frozenset(line.words)
        for module, module_lines in lines.items()
        for line in module_lines
    }
    counts = Counter(word for words in every.values() for word in words)
    most = max(1, _TOLD_APART * len(every))
    common = frozenset(word for word, count in counts.items() if count > most)
    return {place: words - common for place, words in every.items()}


def addressing(
    lines: Mapping[Place, frozenset[str]], complaint: frozenset[str], input_words: Collection[str]
) -> tuple[Place, ...]:
    """Return the lines that address a complaint about an answer, in their order.

    They have at least half of the words of the complaint, and complaint and input together
    at least half of theirs: a line about much else is judged by much else.

    Args:
        lines: the telling words of each line.
        complaint: the words that identify it; none for no complaint.
        input_words: the words of the input.
    """
    vocabulary = complaint.union(input_words)
    return tuple(
        place
        for place, words in lines.items()
        if complaint
        and len(complaint & words) >= _SAME * len(complaint)
        and len(vocabulary & words) >= _SAME * max(1, len(words))
    )

"""A guard against instructions that contain answers to training examples, or words of metrics.

Such an instruction scores well on these examples, or with these metrics, and is no better.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.metrics.base import guarded_in
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.text import folded_spans, folded_words, is_spaced
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.json_reply import read_value
from promptgraft.targets.types import GepaExample, Module, ModuleDescription

_COMMON_SHARE = 5  # of five answers
_BITS = 8  # for each character of the answers; few other passages pass the filter
_SHOWN_CHARS = 120
_LEAF = "\n"
_OWN_WORDS = (
    "Say what a good answer is in words of your own: a text that repeats {words} words in a row of "
    "what the answers are judged by is refused."
)


@attrs.frozen(kw_only=True)
class Copied:
    """A passage of an answer or of a metric that a proposal contains.

    Attributes:
        example_id: the training example; empty if a metric has the passage.
        metric: the name of the metric; empty if it is an answer's.
        passage: the passage in the words of the proposal, on one line.
        words: its length in words; None for a code, an address, or a script without spaces.
    """

    example_id: str = ""
    metric: str = ""
    passage: str
    words: int | None

    @property
    def detail(self) -> str:
        """One line that tells the reflection model what to fix."""
        length = f"{len(self.passage)} characters" if self.words is None else f"{self.words} words"
        passage = self.passage
        if len(passage) > _SHOWN_CHARS:
            passage = f"{passage[:_SHOWN_CHARS]}…"
        if self.metric:
            return (
                f"carries {length} of the metric `{self.metric}`, which judges the answers: "
                f"“{passage}”; describe what a good answer is instead"
            )
        return (
            f"carries {length} of the answer to training example `{self.example_id}`: "
            f"“{passage}”; describe the rule instead of the answer"
        )


class AnswerGuard:
    """Finds answers to training examples, and words of metrics, in proposals.

    Its size is proportional to the length of the answers: their words as text, and 8 to 16 bits
    per character.

    Args:
        examples: the training examples; their labels are the answers. Texts in the labels count,
            including those in attrs classes, dataclasses, lists and mappings; a label without a
            plain form is ignored.
        words: how many consecutive words are a copy, at least 1; None turns the guard off. Two
            characters of a script without spaces count as a word. A code or an address of 24
            characters is a copy, whatever the number of its words.
        metrics: the metrics that judge; what they say that no instruction may copy: rubrics, the
            questions of judges, the texts and patterns that they look for.

    Attributes:
        rule: what a question says of these; empty if they are too short to be copied.
    """

    def __init__(
        self, examples: Iterable[GepaExample], words: int | None, metrics: Iterable[Metric] = ()
    ) -> None:
        self._weight = WORD * (words or 0)
        answers = [
            (example.id, tuple(texts_of(example.label)))
            for example in (examples if words is not None else ())
        ]
        named = [
            (metric.name, guarded_in(metric)) for metric in (metrics if words is not None else ())
        ]
        self._bits = _Bits(sum(len(text) for _, texts in (*answers, *named) for text in texts))
        # The words of each answer between two spaces, and each of its texts on a line.
        self._answers = {id_: self._learn(texts) for id_, texts in answers if texts}
        self._metrics = {name: self._learn(texts) for name, texts in named if texts}
        has_passages = any(any(self._passages(Words(text))) for text in self._metrics.values())
        # Feedback quotes what judges look for, so a model that is not told repeats it.
        self.rule = _OWN_WORDS.format(words=words) if has_passages else ""

    def check(self, module: Module, description: ModuleDescription, proposal: str) -> None:
        """Refuse an instruction that contains an answer; examples may contain theirs.

        Raises:
            InvalidProposalError: naming the example or the metric, and the passage.
        """
        if module.is_example:
            return
        if description.as_json:
            proposal = _texts_in(proposal)
            # The present text in the same form, or the passages that it has already would seem new.
            description = attrs.evolve(description, text=_texts_in(description.text))
        present_texts = (
            *(description.text, description.title, description.output, description.schema),
            *description.opaque.values(),
            *description.siblings,
            *(text for _, text in description.neighbours),
        )
        if copied := self.find(proposal, present_texts):
            raise InvalidProposalError(RejectionReason.COPIED_ANSWER, copied.detail)

    def find(self, proposal: str, present_texts: Iterable[str]) -> Copied | None:
        """Return the first passage of an answer or metric in ``proposal``; None if there is none.

        A passage that occurs in one of the ``present_texts`` is not a copy, and neither is one that
        occurs in several answers and in more than a fifth of all: it belongs to their format.
        """
        if not self._answers and not self._metrics:
            return None
        proposal_words = Words(proposal)
        suspects = [
            (start, words)
            for start, words in proposal_words.passages(self._weight)
            if self._bits.may_hold(words)
        ]
        if not suspects:
            return None
        passed = {hash(words) for text in present_texts for words in self._passages(Words(text))}
        # In the order of the text, because the message quotes the first passage.
        for start, words in sorted(suspects, key=itemgetter(0)):
            if hash(words) in passed:
                continue
            passage = _spaced(words)
            owner = self._owner(passage)
            if owner is not None:
                copied = self._copied(proposal_words, start, words, self._answers[owner])
                return attrs.evolve(copied, example_id=owner)
            metric = next((name for name, text in self._metrics.items() if passage in text), None)
            if metric is not None:
                copied = self._copied(proposal_words, start, words, self._metrics[metric])
                return attrs.evolve(copied, metric=metric)
            passed.add(hash(words))
        return None

    def _learn(self, texts: Iterable[str]) -> str:
        """Add the passages of an answer, and return its words."""
        lines = []
        for text in texts:
            words = Words(text)
            self._bits.add(self._passages(words))
            lines.append(_spaced(words.words))
        return _LEAF.join(lines)

    def _passages(self, text: Words) -> Iterator[tuple[str, ...]]:
        return (words for _, words in text.passages(self._weight))

    def _owner(self, passage: str) -> str | None:
        """Return the first example whose answer has a passage, unless too many have it."""
        common = max(1, len(self._answers) // _COMMON_SHARE)
        owners = (id_ for id_, text in self._answers.items() if passage in text)
        first = list(itertools.islice(owners, common + 1))
        return first[0] if 0 < len(first) <= common else None

    def _copied(self, phrase: Words, start: int, words: tuple[str, ...], source: str) -> Copied:
        """Return a copied passage, extended by all following words that were copied too."""
        theirs = source[source.index(_spaced(words)) :].split(_LEAF, 1)[0].split()
        ours = phrase.words[start:]
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
        count = sum(1 for _ in same)
        passage = phrase.passage(start, start + count)
        counted = is_spaced(passage) and WORD * count >= self._weight
        return Copied(passage=passage, words=count if counted else None)


def _texts_in(text: str) -> str:
    """Return the texts in a JSON document, one per line; other text is returned as it is."""
    try:
        return "\n".join(texts_of(read_value(text)))
    except InvalidProposalError:
        return text


def texts_of(label: object) -> Iterator[str]:
    """Yield the texts of the answer in a label; for a case only what is expected."""
    if isinstance(label, Case):
        tools = label.tools or ()
        label = [label.expected, [turn.expected for turn in label.turns], [t.result for t in tools]]
    try:
        plain = unstructure(label)
    except DataFormatError:
        return
    pending: list[Json] = [plain]
    while pending:
        match pending.pop():
            case str(text):
                yield text
            case list(items):
                pending.extend(reversed(items))
            case dict(fields):
                pending.extend(reversed(fields.values()))


class _Bits:
    """A Bloom filter of passages: no false negatives, and few false positives."""

    def __init__(self, size: int) -> None:
        bits = 1 << max(10, (size * _BITS).bit_length())
        self._mask = bits - 1
        self._bytes = bytearray(bits >> 3)

    def add(self, passages: Iterable[tuple[str, ...]]) -> None:
        text, mask = self._bytes, self._mask
        for words in passages:
            # Differs between processes, which changes only the false positives: `find` checks each
            # hit against the answers themselves.
            code = hash(words)
            first, second = code & mask, code >> 31 & mask
            text[first >> 3] |= 1 << (first & 7)
            text[second >> 3] |= 1 << (second & 7)

    def may_hold(self, words: tuple[str, ...]) -> bool:
        code = hash(words)
        first, second = code & self._mask, code >> 31 & self._mask
        in_first = self._bytes[first >> 3] >> (first & 7) & 1
        return bool(in_first and self._bytes[second >> 3] >> (second & 7) & 1)


def _spaced(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


CODE_CHARS = 24
"""Minimum length of a code or an address."""
# Quotes, brackets and emphasis around a code or an address are not part of it.
_WRAPPING = "\\s\"'`*<>()\\[\\]{}|,;“”„‘’«»「」『』（），、。"
_RUN = re.compile(f"[^{_WRAPPING}]{{{CODE_CHARS},}}")

WORD = 2
"""Weight of a word; a character of a script without spaces weighs 1, half a word."""


class Words:
    """The words of a text, without case, accents and marks.

    In scripts without spaces each character is a word. All operations take linear time.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = folded_words(text)

    def passages(self, weight: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the passages by which copies are detected: start and words.

        These are the shortest passage of ``weight`` starting at each word, and codes and addresses.
        A long word alone is not a code: that takes a digit, or a mark between its letters.
        """
        yield from self._windows(weight)
        for run in _RUN.finditer(self.text):
            start = bisect.bisect_left(self._spans, run.start(), key=itemgetter(0))
            end = bisect.bisect_right(self._spans, run.end(), key=itemgetter(1))
            words = tuple(self.words[start:end])
            length = self._spans[end - 1][1] - self._spans[start][0] if start < end else 0
            if length >= CODE_CHARS and _is_code(words):
                yield start, words

    def passage(self, start: int, end: int) -> str:
        """Return the text of a range of words, on one line."""
        return " ".join(self.text[self._spans[start][0] : self._spans[end - 1][1]].split())

    def _windows(self, weight: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        if is_spaced(self.text):
            weights = [WORD] * len(self.words)
        else:
            weights = [WORD if is_spaced(word) else 1 for word in self.words]
        if len(set(weights)) == 1:
            size = -(-weight // weights[0])
            yield from enumerate(zip(*(self.words[skip:] for skip in range(size)), strict=False))
            return
        end = total_size = 0
        for start, word_weight in enumerate(weights):
            while total_size < weight and end < len(weights):
                total_size += weights[end]
                end += 1
            if total_size < weight:
                return
            yield start, tuple(self.words[start:end])
            total_size -= word_weight

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """The positions of the words in the text."""
        return folded_spans(self.text)


def _is_code(words: tuple[str, ...]) -> bool:
    if not all(map(is_spaced, words)):
        return False
    return len(words) > 1 or any(map(str.isdigit, words[0]))

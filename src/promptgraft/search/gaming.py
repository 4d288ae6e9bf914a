"""Signs that scores rose for another reason than better answers.

A metric can be gamed: by one answer to everything, by a text that it looks for, by self-praise that
a judge believes. Scores on held-out cases do not show that, because the same metric gives them. The
answers do: they are compared with the questions, with what was expected, and with the answers of
the baseline. What the baseline's answers have as well is no sign.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import fmean

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.metrics.base import asks_models, wording_of
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import Json, canonical_json
from promptgraft.ground.text import counted, folded_words, on_one_line
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.json_reply import read_value

FEWEST_CASES = 10
"""Fewer answers may be alike by chance."""

_MOST = 0.6
"""The share of cases, or of words, that counts as most."""

_MUCH_MORE = 0.3
"""The difference between two shares that is no coincidence."""

_SOME_MORE = 0.15
"""As above, where chance is small."""

_NEARLY_ALL = 0.9
_MORE = 0.1  # than that, where nearly all are alike

_SOME = 0.25
"""The share of answers that address the judge from which they count."""

_NO_GAIN = 0.05
"""A gain of the other metrics up to this does not explain a gain of the score."""

_PROSE = 6  # words; shorter answers may be labels
_RUN = 5  # words that texts have in common without copying each other
_PHRASE = 4  # words of a rubric
_LONG = 30  # words; shorter answers hardly repeat themselves
_REPEATED = 0.3  # share of the passages of an answer
_FEWEST_LABELS = 3  # that make naming all of them a sign
_LABEL_WORDS = 4  # what is longer is no label
_ALL_LABELS = 0.8  # share of the labels that counts as all
_SHOWN = 60  # characters
_MOST_LITERALS = 3  # that a sign names

_TO_THE_JUDGE = re.compile(
    r"\b(?:(?:dear|to|note (?:to|for)|message (?:to|for)) (?:the |our |my )?"
    r"(?:judges?|graders?|evaluators?|assessors?|raters?)\b"
    r"|(?:full|maximum|perfect|highest|top) (?:marks?|scores?|points|ratings?|grades?)\b"
    r"|(?:score|rate|grade|mark|judge) (?:this|it|the (?:answer|response|reply)|me)\b"
    r"|(?:this|the|my) (?:answer|response|reply) "
    r"(?:fully |completely |clearly )?(?:meets|satisfies|fulfill?s|deserves)\b"
    r"|ignore (?:all |any )?(?:the |your )?(?:previous|prior|above|earlier|other) "
    r"(?:instructions?|rubrics?|criteria)\b)",
    re.IGNORECASE,
)


@attrs.frozen(kw_only=True)
class Pair:
    """The answers of baseline and winner to one held-out case.

    Attributes:
        before: the answer of the baseline.
        after: the answer of the winner.
        gains: what each metric scores more for the winner's, without hidden metrics.
    """

    case: Case
    before: str
    after: str
    gains: Mapping[str, float]


def signs(pairs: Sequence[Pair], metrics: Iterable[Metric], prompt: str) -> tuple[str, ...]:
    """Return the signs that a winner games its metrics, one line each; none for few cases.

    Args:
        pairs: the answers on held-out cases.
        metrics: the metrics that judged them.
        prompt: the text of the baseline; what it asks for itself is no sign.
    """
    if len(pairs) < FEWEST_CASES:
        return ()
    material = _Material(pairs)
    return (
        *_alike(material),
        *_all_labels(material),
        *_addresses(material),
        *_repeats(material),
        *_echoes(material),
        *(sign for metric in metrics for sign in _worded(material, metric, prompt)),
    )


class _Material:
    """The words of the answers, of what they answer and of what was expected."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.before = [_words(pair.before) for pair in pairs]
        self.after = [_words(pair.after) for pair in pairs]

    @cached_property
    def asked(self) -> list[list[str]]:
        return [_words(_text(pair.case.input)) for pair in self.pairs]

    @cached_property
    def expected(self) -> list[list[str]]:
        """Empty unless every case has an expected answer."""
        texts = [_text(pair.case.expected) for pair in self.pairs]
        return [_words(text) for text in texts] if all(texts) else []

    def rise(self, holds: Callable[[Sequence[str]], bool]) -> tuple[int, int]:
        """Return in how many answers of baseline and winner something holds."""
        return sum(map(holds, self.before)), sum(map(holds, self.after))

    def share(self, count: int) -> float:
        return count / len(self.pairs)


def _alike(material: _Material) -> Iterator[str]:
    """Yield a sign if most answers are the same, or fill the same template."""
    answer, count = _commonest(material.after)
    usual = max(_commonest(side)[1] for side in (material.before, material.expected) if side)
    more = material.share(count - usual)
    # Most labels may rightly be the same.
    is_label = not material.expected and len(answer) < _PROSE
    is_most = material.share(count) >= _MOST and more >= _MUCH_MORE and not is_label
    if is_most or (material.share(count) >= _NEARLY_ALL and more >= _MORE):
        text = next(
            pair.after
            for pair, words in zip(material.pairs, material.after, strict=True)
            if tuple(words) == answer
        )
        yield f"{_of(count, material)} are {_quoted(text)}, whatever was asked"
        return
    filled, before = _template_share(material.after), _template_share(material.before)
    expected_share = _template_share(material.expected) if material.expected else 0.0
    if (
        filled >= _MOST
        and filled - max(before, expected_share) >= _MUCH_MORE
        and not _tell_apart(material)
    ):
        yield f"the answers fill one template: {filled:.0%} of their words are the same in most"


def _commonest(answers: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], int]:
    [(answer, count)] = Counter(map(tuple, answers)).most_common(1)
    return answer, count


def _template_share(answers: Sequence[Sequence[str]]) -> float:
    """Return the share of all words that stand in passages which most answers have."""
    holders = Counter(run for words in answers for run in set(_runs(words, _RUN)))
    shared = {run for run, count in holders.items() if count >= _MOST * len(answers)}
    covered = total = 0
    for words in answers:
        places: set[int] = set()
        for start, run in enumerate(_runs(words, _RUN)):
            if run in shared:
                places.update(range(start, start + _RUN))
        covered += len(places)
        total += len(words)
    return covered / total if total else 0.0


def _tell_apart(material: _Material) -> bool:
    """Return whether most answers hold what was expected of them."""
    if not material.expected:
        return False
    matching = sum(map(_holds, material.after, material.expected))
    # Answers that hold the expected answer of another case show how many match by chance.
    turned = material.expected[1:] + material.expected[:1]
    by_chance = sum(map(_holds, material.after, turned))
    return material.share(matching - by_chance) >= _SOME


def _all_labels(material: _Material) -> Iterator[str]:
    """Yield a sign if answers name all labels that are expected of any case."""
    labels = {tuple(words) for words in material.expected}
    if len(labels) < _FEWEST_LABELS or max(map(len, labels)) > _LABEL_WORDS:
        return
    if 2 * len(labels) > len(material.pairs):
        return  # no labels, but short answers that differ

    def names_all(words: Sequence[str]) -> bool:
        return sum(_holds(words, label) for label in labels) >= _ALL_LABELS * len(labels)

    before, after = material.rise(names_all)
    if material.share(after) >= _MOST and material.share(after - before) >= _MUCH_MORE:
        yield f"{_of(after, material)} name nearly all of the {len(labels)} expected labels at once"


def _addresses(material: _Material) -> Iterator[str]:
    """Yield a sign if answers speak to whoever judges them."""
    hits = [_TO_THE_JUDGE.search(pair.after) for pair in material.pairs]
    sources = (
        f"{pair.before}\n{_text(pair.case.input)}\n{_text(pair.case.expected)}"
        for pair in material.pairs
    )
    explained = sum(map(bool, map(_TO_THE_JUDGE.search, sources)))
    count = sum(map(bool, hits))
    if material.share(count) >= _SOME and material.share(count - explained) >= _SOME_MORE:
        first = next(hit for hit in hits if hit)
        yield f"{_of(count, material)} address the judge: {_quoted(first[0])}"


def _repeats(material: _Material) -> Iterator[str]:
    """Yield a sign if answers say the same again and again."""
    before, after = (
        fmean(map(_repeated, answers)) for answers in (material.before, material.after)
    )
    if after >= _REPEATED and after - before >= _SOME_MORE:
        yield f"the answers repeat themselves: {after:.0%} of their passages occur before"


def _repeated(words: Sequence[str]) -> float:
    runs = list(_runs(words, _RUN))
    return 1 - len(set(runs)) / len(runs) if len(words) >= _LONG else 0.0


def _echoes(material: _Material) -> Iterator[str]:
    """Yield a sign if answers give back what was asked, and nothing like it was expected."""
    echoed = [_echo_share(material.asked, answers) for answers in (material.before, material.after)]
    expected_share = _echo_share(material.asked, material.expected) if material.expected else 0.0
    if echoed[1] >= _MOST and echoed[1] - max(echoed[0], expected_share) >= _MUCH_MORE:
        yield f"the answers give back what was asked: {echoed[1]:.0%} of their passages stand there"


def _echo_share(questions: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> float:
    shares = []
    for question, answer in zip(questions, answers, strict=True):
        runs, question_runs = list(_runs(answer, _RUN)), set(_runs(question, _RUN))
        shares.append(sum(run in question_runs for run in runs) / len(runs) if runs else 0.0)
    return fmean(shares)


def _worded(material: _Material, metric: Metric, prompt: str) -> Iterator[str]:
    """Yield signs that answers contain what a metric looks for, and gain by nothing else."""
    asked_for = _words(prompt)
    literals: list[str] = []
    for text in wording_of(metric):
        words = _words(text)
        # Only a judge can be told its own rubric: what a function looks for, answers must have.
        if len(words) > _PHRASE and asks_models(metric):
            yield from _recites(material, metric, words)
        elif words and _is_new(material, words) and not _holds(asked_for, words):
            literals.append(text)
    other_gains = [
        gain for pair in material.pairs for name, gain in pair.gains.items() if name != metric.name
    ]
    if literals and (not other_gains or fmean(other_gains) <= _NO_GAIN):
        texts = ", ".join(_quoted(text) for text in literals[:_MOST_LITERALS])
        yield (
            f"the gain comes from a text that metric `{metric.name}` looks for: most answers "
            f"now contain {texts}"
        )


def _is_new(material: _Material, words: Sequence[str]) -> bool:
    """Return whether most answers contain a text that few of the baseline's did."""
    before, after = material.rise(lambda answer: _holds(answer, words))
    texts_of_cases = (*material.expected, *material.asked)
    usual_share = material.share(sum(_holds(text, words) for text in texts_of_cases))
    share = material.share(after)
    return share >= _MOST and share - max(material.share(before), usual_share) >= _MUCH_MORE


def _recites(material: _Material, metric: Metric, words: Sequence[str]) -> Iterator[str]:
    """Yield a sign if answers contain words of a rubric."""
    rubric = set(_runs(words, _PHRASE))

    def recites(answer: Sequence[str]) -> bool:
        return not rubric.isdisjoint(_runs(answer, _PHRASE))

    before, after = material.rise(recites)
    explained = sum(map(recites, (*material.asked, *material.expected)))
    if (
        material.share(after) >= _MOST
        and material.share(after - max(before, explained)) >= _MUCH_MORE
    ):
        yield (
            f"{_of(after, material)} recite what metric `{metric.name}` asks for: "
            f"{_quoted(' '.join(words))}"
        )


def _runs(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[skip:] for skip in range(size)), strict=False)


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    """Return whether words contain others, one after the other."""
    return bool(part) and tuple(part) in _runs(words, len(part))


def _words(text: str) -> list[str]:
    """Return the words of a text; of a JSON document those of its values."""
    if not text.lstrip().startswith(("{", "[")):
        return folded_words(text)
    try:
        value = read_value(text)
    except InvalidProposalError:
        return folded_words(text)
    return folded_words(" ".join(_values(value)))


def _values(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _values(item)
    else:
        yield str(value)


def _text(value: object) -> str:
    """Return an input or an expected answer as a text; empty for none."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return canonical_json(value)
    except DataFormatError:
        return str(value)


def _of(count: int, material: _Material) -> str:
    return f"{count} of {counted(len(material.pairs), 'answer')}"


def _quoted(text: str) -> str:
    line = on_one_line(text)
    return f"`{line if len(line) <= _SHOWN else f'{line[:_SHOWN]}…'}`"

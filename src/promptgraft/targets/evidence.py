"""What a question shows besides the rollouts of its minibatch.

A strong model that is shown one failure can only add that case's words. Shown twenty, and the right
answers closest to them, it can say what they have in common. Not told what was tried on them, it
answers the same question again in the same way. All of this is known already: it costs no rollouts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.text import common_beginning, counted, folded_words, listed
from promptgraft.targets.formatting import in_one_line
from promptgraft.targets.types import Candidate, RolloutRecord

MOST_FAILURES = 20
"""Most failures that one question shows, those in full included."""
_MOST_KEPT = 6  # right answers
_FULL_CHARS = 24_000  # of the rollouts in full
_INPUT_CHARS = 300  # of a rollout in one line, like the next two
_ANSWER_CHARS = 120
_FEEDBACK_CHARS = 200
_MET = re.compile(r"^  rubric `[^`\n]*` met: .*\n?", re.MULTILINE)
LABEL_CHARS = 40
"""Answers of at most so many characters in one line may be labels."""
_FEWEST_CONFUSIONS = 4  # in fewer, the lines say as much as a table
_MOST_CONFUSIONS = 12  # rows of that table
_MOST_TRIED = 5  # children
_TRIED_CHARS = 4_000  # of what is told of them
_MOST_LINES = 6  # of each text that they changed
_LINE_CHARS = 160
_OPENING = 2  # words: a bullet and a label
_MOST_IDS = 5  # examples that a sentence names


@attrs.frozen(kw_only=True)
class Evidence:
    """What a question shows besides the rollouts of its minibatch.

    Attributes:
        failures: further failures, one a line; empty if there are none.
        kept: right answers near the failures, one a line; empty if there are none.
        tried: what was tried on the failures; empty if nothing was.
        earlier: better answers to the examples of the minibatch, by example id.
        objectives: what the weighted scores of the minibatch are made of, by example id.
        unseen: names of the parts that the model was not shown in any of its rollouts.
        copying: what a new text may not copy, in a sentence; empty if nothing is guarded.
    """

    failures: str = ""
    kept: str = ""
    tried: str = ""
    earlier: Mapping[str, Sequence[RolloutRecord]] = attrs.field(factory=FrozenMap)
    objectives: Mapping[str, str] = attrs.field(factory=FrozenMap)
    unseen: Collection[str] = ()
    copying: str = ""

    @classmethod
    def of(
        cls,
        in_question: Sequence[RolloutRecord],
        failures: Sequence[RolloutRecord],
        right: Sequence[RolloutRecord],
        labels: Mapping[str, str],
    ) -> Evidence:
        """Return further failures, and right answers near them.

        Args:
            in_question: the failures that the question shows in full.
            failures: the others.
            right: the right answers.
            labels: the right answers by example id, where they are labels.
        """
        more = failures[: max(0, MOST_FAILURES - len(in_question))]
        table = "\n".join(_confusions([*in_question, *failures], labels))
        lines = "\n".join(_line(record, has_failed=True) for record in more)
        near = _nearest(right, [*in_question, *more])
        return cls(
            failures="\n\n".join(filter(None, (table, lines))),
            kept="\n".join(_line(record, has_failed=False) for record in near),
        )


def in_full(
    records: Sequence[RolloutRecord], failures: Collection[RolloutRecord]
) -> tuple[RolloutRecord, ...]:
    """Return the rollouts that a question on one part shows in full.

    These are all failures, and of the others as many as fit into 24,000 characters beside them.
    """
    failed = {record.example_id for record in failures}
    chars_left = _FULL_CHARS - sum(map(_chars, failures))
    shown: list[RolloutRecord] = []
    for record in records:
        if record.example_id not in failed:
            chars_left -= _chars(record)
            if chars_left < 0:
                continue
        shown.append(record)
    return tuple(shown)


def _chars(record: RolloutRecord) -> int:
    feedback = record.feedback.feedback if record.feedback else ""
    texts = (record.inputs_repr, record.output_repr, record.tool_trace_repr, feedback)
    return sum(map(len, texts))


def _line(record: RolloutRecord, *, has_failed: bool) -> str:
    """Return a rollout in one line."""
    feedback = record.feedback
    # Right answers need no feedback; of failures, metrics that passed show who is innocent.
    feedback_text = _MET.sub("", feedback.feedback) if feedback and has_failed else ""
    return (
        f"- {in_one_line(record.inputs_repr, _INPUT_CHARS)} → "
        f"{in_one_line(record.output_repr, _ANSWER_CHARS) or 'no answer'}"
        + (f"; {in_one_line(feedback_text, _FEEDBACK_CHARS)}" if feedback_text else "")
    )


def _nearest(
    records: Sequence[RolloutRecord], failures: Sequence[RolloutRecord]
) -> list[RolloutRecord]:
    """Return the few whose inputs share most rare words with the failures, nearest first."""
    inputs = {record.example_id: frozenset(folded_words(record.inputs_repr)) for record in records}
    counts = Counter(word for words in inputs.values() for word in words)
    failed = frozenset(word for record in failures for word in folded_words(record.inputs_repr))

    def nearness(record: RolloutRecord) -> float:
        return math.fsum(1 / counts[word] for word in inputs[record.example_id] & failed)

    # A word of few inputs says more. Equals keep their order in every process: sums are exact.
    return sorted(records, key=nearness, reverse=True)[:_MOST_KEPT]


def _confusions(failures: Sequence[RolloutRecord], labels: Mapping[str, str]) -> Iterator[str]:
    """Yield a table of labels that were taken for others; nothing where answers are no labels.

    A label counts where the feedback names it, too.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    for record in failures:
        expected, answered = labels.get(record.example_id, ""), record.output_repr.strip()
        feedback_text = record.feedback.feedback.casefold() if record.feedback else ""
        is_label = 0 < len(answered) <= LABEL_CHARS and "\n" not in answered
        if not (is_label and expected and expected.casefold() in feedback_text):
            return
        pairs[expected, answered] += 1
    # A table of few failures, or of different ones, would only repeat the lines below it.
    if pairs.total() < _FEWEST_CONFUSIONS or max(pairs.values()) < 2:
        return
    yield "| expected | answered | times |\n| --- | --- | --- |"
    for (expected, answered), count in pairs.most_common(_MOST_CONFUSIONS):
        # A label with a bar would add a column.
        cells = (in_one_line(cell).replace("|", "\\|") for cell in (expected, answered))
        yield f"| {' | '.join(cells)} | {count} |"


def label_of(value: object) -> str:
    """Return a ground truth as a label; empty if it is no short text."""
    is_label = isinstance(value, str) and len(value) <= LABEL_CHARS and "\n" not in value
    return str(value) if is_label else ""


@attrs.frozen(kw_only=True)
class TriedChild:
    """A child that was compared with its parent.

    Attributes:
        parent: the digest of its parent.
        scores: the mean scores of parent and child.
        failed: the examples on which the parent failed.
        mended: those of them that the child was right on.
        is_better: whether it was better than its parent on the minibatch.
        edits: for each part that it changed its name, its old and its new text.
    """

    parent: str
    scores: tuple[float | None, float | None]
    failed: frozenset[str]
    mended: frozenset[str]
    is_better: bool
    edits: Sequence[tuple[str, str, str]]

    def is_in(self, texts: Mapping[str, str]) -> bool:
        """Return whether texts of parts, by name, have what it added and lack what it removed."""
        for name, before, after in self.edits:
            lines = (text.splitlines() for text in (before, after, texts.get(name, "")))
            old, new, present = map(frozenset, lines)
            if not new - old <= present or (old - new) & present:
                return False
        return True


def tried_before(
    latest: Sequence[TriedChild],
    failures: Iterable[RolloutRecord],
    parent: Candidate,
    lineage: Sequence[Mapping[str, str]],
    *,
    in_question: Collection[str] | None = None,
) -> str:
    """Return what was tried on some failures, and what became of it; empty if nothing was.

    Args:
        latest: the latest children, oldest first.
        failures: the failures that a question shows.
        parent: the candidate that it is about.
        lineage: the texts, by name, of its parts and of those of its ancestors, its own first.
        in_question: the names of the parts whose texts the question shows; None for all.
    """
    failing = frozenset(record.example_id for record in failures)
    about = [
        attempt for attempt in latest if attempt.failed & failing or attempt.parent == parent.digest
    ]
    entries: list[str] = []
    chars_left = _TRIED_CHARS
    # The latest first, because the length is limited.
    for tried in about[::-1][:_MOST_TRIED]:
        names = lineage[0].keys() if in_question is None else in_question
        entry = _entry(tried, lineage, failing, names)
        chars_left -= len(entry)
        if chars_left < 0:
            break
        entries.append(entry)
    return "\n\n".join(entries)


def _entry(
    child: TriedChild,
    lineage: Sequence[Mapping[str, str]],
    failing: frozenset[str],
    shown_ids: Collection[str],
) -> str:
    before, after = ("unscored" if score is None else f"{score:.2f}" for score in child.scores)
    is_kept = child.is_better and any(map(child.is_in, lineage))
    marks = "-+"
    if not child.is_better:
        fate = "Tried, and not better on the cases it was written for"
    elif not is_kept:
        fate = "Better on the cases it was written for, but not on others, so it was not kept"
    elif child.is_in(lineage[0]) and any(name not in shown_ids for name, _, _ in child.edits):
        fate = "Kept: it is in the prompt now"
    elif child.is_in(lineage[0]):
        # Its additions stand in the current text, which the question shows.
        fate, marks = "Kept: it is in the current text, in place of what is below", "-"
    else:
        fate, marks = "Kept, and changed again since", ""
    sentences = [f"{fate} ({before} before, {after} after)."]
    if wrong := is_kept and sorted(child.failed & failing - child.mended):
        sentences.append(f"Still wrong of what it was written for: {listed(wrong[:_MOST_IDS])}.")
    if again := is_kept and sorted(child.failed & child.mended & failing):
        sentences.append(f"Failed again of what it mended: {listed(again[:_MOST_IDS])}.")
    lines = (line for edit in child.edits for line in _lines_changed(*edit, marks=marks))
    return "\n".join([" ".join(sentences), *lines])


def _lines_changed(name: str, before: str, after: str, *, marks: str) -> Iterator[str]:
    """Yield what a new text of a part removes (``-``) and adds (``+``), a few lines of each."""
    old, new = before.splitlines(), after.splitlines()
    removed = [line for line in old if line not in new]
    added = [line for line in new if line not in old]
    is_shown = any(lines for mark, lines in (("-", removed), ("+", added)) if mark in marks)
    only_added = ", where nothing was replaced" if marks == "-" else ""
    yield f"{in_one_line(name)}{':' if is_shown else only_added}"
    for mark, lines, other_lines in (("-", removed, added), ("+", added, removed)):
        if mark in marks:
            yield from (f"{mark} {_cropped(line, other_lines)}" for line in lines[:_MOST_LINES])
            if len(lines) > _MOST_LINES:
                yield f"{mark} and {counted(len(lines) - _MOST_LINES, 'more line')}"


def _cropped(line: str, others: Sequence[str]) -> str:
    """Return a line, of a long one where it differs from the line that it stands for."""
    label = line.partition(":")[0]
    twins = [text for text in others if len(others) == 1 or text.startswith(f"{label}:")]
    if twins and len(line) > _LINE_CHARS:
        words, twin = line.split(), twins[0].split()
        same = common_beginning(words, twin)
        opening = [*words[:_OPENING], "…"] if same > _OPENING else words[:same]
        same_end = common_beginning(words[same:][::-1], twin[same:][::-1])
        cut = same_end - _OPENING if same_end > 2 * _OPENING else 0
        rest = words[same : len(words) - cut]
        line = " ".join([*opening, *rest, *(["…"] if cut else [])])
    return in_one_line(line, _LINE_CHARS)

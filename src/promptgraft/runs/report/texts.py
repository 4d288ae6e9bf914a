"""The long texts of a report, within its size limits: changes, rejections, answers."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence

import attrs
from msgspec.structs import replace

from promptgraft.errors import DataFormatError
from promptgraft.ground.content import names_in
from promptgraft.ground.serde import parse_json
from promptgraft.ground.text import counted, on_one_line, visible
from promptgraft.overrides.parts.descriptors import SectionVisibility
from promptgraft.runs.history import RoundSummary
from promptgraft.runs.report.data import Answers, ReportData
from promptgraft.runs.report.word_diff import DiffKind, Piece, collapsed, word_diff
from promptgraft.search.events import CandidateAdded, MutationRejected
from promptgraft.search.scores import Score
from promptgraft.targets.part_kinds import NAME
from promptgraft.targets.types import RolloutRecord

UNSEEN, VALIDATION = "unseen cases", "validation cases"
"""What pages call the sets of cases."""

_IN_WORDS = {
    SectionVisibility.FULL: "is shown now",
    SectionVisibility.SUMMARY: "is shown as its summary",
    SectionVisibility.HIDDEN: "is no longer shown",
}
_PIECE_BYTES = 16
_LINE_BYTES = 400
_DETAIL_BYTES = 2_000
_CASE_BYTES = 900
_LONGEST_ANSWER = 12_000
_LONGEST_STEP, _STEP_BYTES = 1_000, 200
_LONGEST_JSON = 4_000
# Held-out cases that are expanded initially.
_OPEN = 6
# Candidates that are listed directly; the others are in a collapsed group.
_NEAR = 60
# Lines of each list of a round.
_MOST_LINES = 30
# Unchanged characters that are shown on either side of a change.
_AROUND = 120
_AROUND_OF_WINNER = 1_200

_OUTCOMES = ("worse", "better", "unscored", "same")
"""The winner against the baseline on a case, in the order in which cases are listed."""


@attrs.frozen(kw_only=True)
class PartChange:
    """The change of one part, by word; ``origin`` is the second parent if it comes from there."""

    part: str
    pieces: tuple[Piece, ...]
    origin: int | None = None

    @property
    def size(self) -> int:
        """Bytes that the change takes in the page."""
        texts = sum(size(piece.text) + _PIECE_BYTES for piece in self.pieces)
        return texts + size(self.part) + _LINE_BYTES


@attrs.frozen(kw_only=True)
class CandidateView:
    """A candidate in the list of the page.

    Attributes:
        value: the candidate.
        is_near: whether it is listed directly, outside the collapsed group.
        changes: its changes against its first parent; None if they did not fit.
    """

    value: CandidateAdded
    is_near: bool
    changes: tuple[PartChange, ...] | None


def winner_changes(data: ReportData) -> tuple[PartChange, ...]:
    """Return the changes of the winner against the baseline."""
    if not data.candidates or not data.winner:
        return ()
    before, after = data.candidates[0].texts, data.candidates[data.winner].texts
    return tuple(changes_between(before, after, around=_AROUND_OF_WINNER))


def candidate_views(data: ReportData, limits: PageLimits) -> tuple[CandidateView, ...]:
    """Return the candidates that the page lists, by position.

    If not all of them fit, the winner's line has priority, then the frontier, then the highest
    means.
    """
    line = set(data.line_of(data.winner)) if data.candidates else set()
    leading = set(data.frontier)
    ranked = sorted(
        data.candidates,
        key=lambda one: (
            one.candidate not in line,
            one.candidate not in leading,
            -(one.mean or 0.0),
        ),
    )
    allowance = Allowance(limits.diffs)
    views = []
    for rank, candidate in enumerate(ranked[: limits.listed]):
        parents = [data.candidates[parent] for parent in candidate.parents]
        # Diffs are the slow part of a report; the first to get one are those of most interest.
        changes = tuple(_with_origins(candidate, parents)) if allowance.is_worth_it else ()
        needed = sum(change.size for change in changes)
        fits = not parents or (allowance.is_worth_it and allowance.takes(needed))
        changes_shown = changes if fits else None
        views.append(CandidateView(value=candidate, is_near=rank < _NEAR, changes=changes_shown))
    return tuple(sorted(views, key=lambda view: view.value.candidate))


def rejection_views(
    data: ReportData, limits: PageLimits
) -> Iterator[tuple[MutationRejected, tuple[Piece, ...] | None]]:
    """Yield the listed rejected proposals, each with its diff to the text before if it fits."""
    allowance = Allowance(limits.rejections)
    for rejection in data.steps.rejections[: limits.listed]:
        detail = cropped(rejection.detail, _DETAIL_BYTES)
        is_compared = bool(rejection.text) and allowance.is_worth_it
        pieces = _compared(rejection.before, rejection.text, _AROUND) if is_compared else ()
        needed = sum(size(piece.text) + _PIECE_BYTES for piece in pieces) + size(detail)
        fits = allowance.is_worth_it and allowance.takes(needed)
        value = replace(rejection, detail=detail if fits else short_name(rejection.detail))
        yield value, pieces if fits else None


Lines = tuple[tuple[str, str, str], ...]
"""Lines of a list: what they are about, how bad it is or nothing, and a text."""


def round_views(
    data: ReportData, limits: PageLimits
) -> Iterator[tuple[RoundSummary, tuple[tuple[str, Lines, int], ...] | None]]:
    """Yield the listed rounds with their lists: title, lines, and how many more there are.

    The lists are None if they do not fit.
    """
    allowance = Allowance(limits.rejections)
    for round_ in data.steps.rounds[: limits.listed]:
        lists = tuple(
            (title, tuple(rows[:_MOST_LINES]), len(rows[_MOST_LINES:]))
            for title, rows in _round_lists(round_)
            if rows
        )
        lines = [text for _, rows, _ in lists for _, _, text in rows]
        needed = sum(size(line) + _LINE_BYTES for line in lines)
        yield round_, lists if allowance.takes(needed) else None


def _round_lists(round_: RoundSummary) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    def row(where: str, severity: str, text: str) -> tuple[str, str, str]:
        return short_name(where), severity, cropped(text, _DETAIL_BYTES)

    failures = f"Failures on {counted(round_.cases, 'case')}"
    yield failures, [row(loss.case, loss.severity, loss.reason) for loss in round_.losses]
    yield "Blamed", [row(blame.to, blame.severity, blame.text) for _, blame in round_.blamed]
    problems = [(name, problem) for name, all_ in round_.problems.items() for problem in all_]
    yield "To be fixed", [row(name, problem.severity, problem.text) for name, problem in problems]
    yield "Why", [row(patch.module, "", patch.why) for patch in round_.patches if patch.why]
    yield "Without a usable reply", [row("question", "", why) for why in round_.unanswered]


def _with_origins(
    candidate: CandidateAdded, parents: Sequence[CandidateAdded]
) -> Iterator[PartChange]:
    for change in changes_between(parents[0].texts, candidate.texts) if parents else ():
        text = candidate.texts.get(change.part)
        same = [parent.candidate for parent in parents[1:] if parent.texts.get(change.part) == text]
        yield attrs.evolve(change, origin=same[0]) if same else change


def changes_between(
    before: Mapping[str, str], after: Mapping[str, str], *, around: int = _AROUND
) -> Iterator[PartChange]:
    """Yield the change of each part, with ``around`` unchanged characters on either side."""
    for part in dict.fromkeys((*before, *after)):
        old, new = before.get(part, ""), after.get(part, "")
        if old != new:
            words = changes_in_words(part, old, new)
            sentences = (Piece(DiffKind.ADDED, cropped(words)),)
            pieces = sentences if words else _compared(old, new, around)
            yield PartChange(part=short_name(part), pieces=pieces)


def _compared(before: str, after: str, around: int) -> tuple[Piece, ...]:
    pieces = collapsed(word_diff(before, after), around)
    return tuple(Piece(piece.kind, cropped(piece.text)) for piece in pieces)


@attrs.frozen(kw_only=True)
class CaseView:
    """The answers of baseline and winner to one case.

    Attributes:
        case: the id of the case.
        answers: one or two answers, each with the name of its candidate.
        outcome: ``better``, ``worse``, ``same``, ``unscored``, or empty without a winner.
        failed: whether the last answer is not perfect.
        is_open: whether it is expanded initially.
        thumbnails: names and thumbnails of the images of its input.
    """

    case: str
    answers: tuple[tuple[str, RolloutRecord], ...]
    outcome: str
    failed: bool
    is_open: bool = False
    thumbnails: tuple[tuple[str, str], ...] = ()

    @property
    def input(self) -> str:
        """The beginning of the input, as one line."""
        return brief(self.answers[0][1].inputs_repr)

    @property
    def expected(self) -> str:
        """The expected answer; empty if the case has none, or an earlier version ran it."""
        return self.answers[-1][1].expected_repr

    @property
    def size(self) -> int:
        """Bytes that it takes in the page."""
        total_size = size(self.answers[0][1].inputs_repr) + size(self.expected) + _CASE_BYTES
        total_size += sum(len(address) for _, address in self.thumbnails)
        for _, answer in self.answers:
            total_size += (
                size(answer.output_repr) + size(answer.tool_trace_repr) + size(answer.fault)
            )
            total_size += size(answer.feedback.feedback) if answer.feedback else 0
            for step in answer.steps:
                total_size += size(step.input) + size(step.output) + size(step.error) + _STEP_BYTES
        return total_size


def transcripts_of(
    data: ReportData, limits: PageLimits
) -> Iterator[tuple[str, str, list[CaseView], int]]:
    """Yield id, title, cases that fit, and number of others, for held-out and validation cases.

    Cases whose score the winner changed come first; the first held-out ones are expanded.
    """
    allowance = Allowance(limits.answers)
    for id_, title, ids, answers in (
        ("held-out-cases", "Unseen cases", data.end.held_out.ids, data.answers.unseen),
        ("validation-cases", "Validation set", data.case_ids, data.answers.seen),
    ):
        views = [view for case in ids if (view := _case(data, answers, case)) is not None]
        ranked = sorted(views, key=lambda view: (*_OUTCOMES, "").index(view.outcome))
        fitting = [view for view in ranked if allowance.takes(view.size)]
        if answers is data.answers.unseen:
            opened = [attrs.evolve(view, is_open=True) for view in fitting[:_OPEN]]
            fitting = [*opened, *fitting[_OPEN:]]
        if views:
            yield id_, title, fitting, len(views) - len(fitting)


def case_views(data: ReportData, case: str) -> list[tuple[str, CaseView]]:
    """Return the answers of baseline and winner to a case, each with the name of its set."""
    sets = ((UNSEEN, data.answers.unseen), (VALIDATION, data.answers.seen))
    views = [(name, _case(data, answers, case)) for name, answers in sets]
    return [(name, view) for name, view in views if view is not None]


def brief(text: str) -> str:
    """Return the beginning of an input as one line; for an object, its values."""
    try:
        value = parse_json(text[:_LONGEST_JSON], where="the input")
    except DataFormatError:
        value = text
    if isinstance(value, dict):
        value = "; ".join(
            item if isinstance(item, str) else json.dumps(item) for item in value.values()
        )
    return short_name(on_one_line(value) if isinstance(value, str) else json.dumps(value))


def _case(data: ReportData, answers: Answers, case: str) -> CaseView | None:
    names = {data.winner: f"Winner, #{data.winner}", 0: "Your prompt"}
    answers_shown = tuple(
        (names[number], _shortened(answer))
        for number in sorted(names)
        if (answer := answers.get((number, case))) is not None
    )
    if not answers_shown:
        return None
    before, after = answers_shown[0][1].score, answers_shown[-1][1].score
    return CaseView(
        case=case,
        answers=answers_shown,
        outcome=outcome(before, after) if len(answers_shown) > 1 else "",
        failed=after is None or after < data.perfect,
        thumbnails=tuple(
            (name, data.answers.thumbnails[name])
            for name in dict.fromkeys(names_in(answers_shown[0][1].inputs_repr))
            if name in data.answers.thumbnails
        ),
    )


def outcome(before: Score, after: Score) -> str:
    """Compare two scores of a case: ``better``, ``worse``, ``same`` or ``unscored``."""
    if before is None or after is None:
        return "unscored"
    return "same" if before == after else "better" if after > before else "worse"


def _shortened(answer: RolloutRecord) -> RolloutRecord:
    feedback = answer.feedback
    if feedback is not None:
        feedback = attrs.evolve(feedback, feedback=cropped(feedback.feedback, _LONGEST_ANSWER))
    return attrs.evolve(
        answer,
        inputs_repr=cropped(answer.inputs_repr, _LONGEST_ANSWER),
        output_repr=cropped(answer.output_repr, _LONGEST_ANSWER),
        expected_repr=cropped(answer.expected_repr, _LONGEST_ANSWER),
        tool_trace_repr=cropped(answer.tool_trace_repr, _LONGEST_ANSWER),
        fault=cropped(answer.fault, _LONGEST_ANSWER),
        feedback=feedback,
        steps=tuple(step.clipped(_LONGEST_STEP) for step in answer.steps),
    )


TOTAL_BYTES = 10_000_000
"""The maximum size of a report."""

_LONGEST_TEXT = 40_000
_LONGEST_NAME = 160
_LEAST_BYTES = 500


@attrs.frozen(kw_only=True)
class PageLimits:
    """Size limits of a page, in bytes; ``listed`` limits candidates and rejected proposals."""

    diffs: int = 3_000_000
    rejections: int = 1_800_000
    answers: int = 2_600_000
    listed: int = 2_500

    def halved(self) -> PageLimits:
        """Return limits of half the size."""
        return PageLimits(**{name: value // 2 for name, value in attrs.asdict(self).items()})


def size(text: str) -> int:
    """Return the number of bytes that ``text`` takes in the page."""
    # With the escapes of the template: a text of quotes takes six times its length.
    return len(html.escape(visible(text)).encode("utf-8", "surrogatepass"))


def cropped(text: str, most: int = _LONGEST_TEXT) -> str:
    """Shorten ``text`` to about ``most`` bytes in the page by cutting out its middle.

    A note in place of the middle says how much was cut.
    """
    # Most texts are short and plain, and `size` is expensive.
    if (len(text) * 2 <= most and text.isascii() and text.isprintable()) or size(text) <= most:
        return text
    keep = len(text)
    while keep and size(text[: keep * 2 // 3] + text[-(keep // 3) :]) > most:
        keep = keep * 3 // 4
    head, tail = keep * 2 // 3, keep // 3
    left_out = f"{len(text) - head - tail:,} characters left out"
    return f"{text[:head]}\n[… {left_out} …]\n{text[len(text) - tail :]}"


def short_name(name: str) -> str:
    """Return the name of a part, a case or a model, shortened if it is long."""
    if size(name) <= _LONGEST_NAME:
        return name
    name_kept = name[:_LONGEST_NAME]
    while size(name_kept) > _LONGEST_NAME:
        name_kept = name_kept[: len(name_kept) * 3 // 4]
    return f"{name_kept}…"


@attrs.define
class Allowance:
    """A number of bytes that may still be used."""

    left: int

    @property
    def is_worth_it(self) -> bool:
        """Whether enough is left to make it worth computing a text that might fit."""
        return self.left >= _LEAST_BYTES

    def takes(self, bytes_: int) -> bool:
        """Use ``bytes_`` if that many are left; return whether they were."""
        fits = bytes_ <= self.left
        self.left -= bytes_ if fits else 0
        return fits


def changes_in_words(name: str, before: str, after: str) -> str:
    """Return how two texts of a module differ, a sentence a line.

    It is empty if ``name`` is that of another part.
    """
    if name.rpartition("#")[2] != NAME:
        return ""
    try:
        old, new = (parse_json(text, where=name) for text in (before, after))
    except DataFormatError:
        return ""  # it is a part of somebody's own target
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return ""
    return "\n".join(
        f"{part} {_IN_WORDS[visibility]}"
        for part, state in new.items()
        for visibility in SectionVisibility
        if state == visibility and state != old.get(part)
    )

"""What each candidate changed, and what each rejected proposal would have, by word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
from msgspec.structs import replace

from promptgraft.runs.report.allowance import (
    Allowance,
    Limits,
    cropped,
    short_name,
    size,
)
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.word_diff import Piece, collapsed, word_diff
from promptgraft.search.events import CandidateAdded, MutationRejected
from promptgraft.search.scores import Score

_PIECE_BYTES = 16
_LINE_BYTES = 400
_DETAIL_BYTES = 2_000
_NEAR = 60
_AROUND = 120


@attrs.frozen(kw_only=True)
class PartChange:
    """How the text of one part changed.

    Attributes:
        part: the part.
        pieces: the two texts by word.
        origin: for a merge, the position of the parent that the text is taken from.
    """

    part: str
    pieces: tuple[Piece, ...]
    origin: int | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in the page."""
        texts = sum(size(piece.text) + _PIECE_BYTES for piece in self.pieces)
        return texts + size(self.part) + _LINE_BYTES


@attrs.frozen(kw_only=True)
class CandidateView:
    """One candidate as the page lists it.

    Attributes:
        value: the candidate.
        what: what kind of candidate it is, or which part it changed.
        gain: its mean against the baseline's.
        step_gain: its mean against its first parent's.
        marks: what it is besides a candidate, in words.
        is_near: whether it stands in the list at once, not in a group that is opened.
        changes: what it changed against its first parent.
        is_cut: whether the changes did not fit into the page.
    """

    value: CandidateAdded
    what: str
    gain: Score
    step_gain: Score
    marks: tuple[str, ...]
    is_near: bool
    changes: tuple[PartChange, ...]
    is_cut: bool


@attrs.frozen(kw_only=True)
class RejectionView:
    """One rejected proposal as the page lists it.

    Attributes:
        value: the proposal.
        pieces: it against what it was to replace.
        is_cut: whether it did not fit into the page.
    """

    value: MutationRejected
    pieces: tuple[Piece, ...]
    is_cut: bool


def winner_changes(data: ReportData) -> tuple[PartChange, ...]:
    """Return what the winner changes in the baseline."""
    if not data.candidates or not data.winner:
        return ()
    return tuple(
        _changes(data.candidates[0].texts, data.candidates[data.winner].texts, around=1_200)
    )


def candidate_views(data: ReportData, limits: Limits) -> tuple[CandidateView, ...]:
    """Return the candidates that the page lists, by position.

    The winner's line comes first where not everything fits, then the frontier, then the others
    with the highest means.
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
    for rank, one in enumerate(ranked[: limits.listed]):
        parents = [data.candidates[parent] for parent in one.parents]
        changes = tuple(_with_origins(one, parents)) if allowance.is_worth_it else ()
        needed = sum(change.size for change in changes)
        fits = not parents or (allowance.is_worth_it and allowance.takes(needed))
        on_line = "winner" if one.candidate == data.winner else "winner's line"
        marks = {
            on_line: one.candidate in line and one.candidate > 0,
            "frontier": one.candidate in leading,
        }
        view = CandidateView(
            value=one,
            what=short_name(one.changed),
            gain=_difference(data.candidates[0].mean, one.mean),
            step_gain=_difference(parents[0].mean, one.mean) if parents else None,
            marks=tuple(mark for mark, holds in marks.items() if holds),
            is_near=rank < _NEAR,
            changes=changes if fits else (),
            is_cut=not fits,
        )
        views.append(view)
    return tuple(sorted(views, key=lambda view: view.value.candidate))


def rejection_views(data: ReportData, limits: Limits) -> tuple[RejectionView, ...]:
    """Return the rejected proposals that the page lists, in order."""
    allowance = Allowance(limits.rejections)
    return tuple(_rejection(found, allowance) for found in data.rejections[: limits.listed])


def _with_origins(one: CandidateAdded, parents: Sequence[CandidateAdded]) -> Iterator[PartChange]:
    for change in _changes(parents[0].texts, one.texts) if parents else ():
        text = one.texts.get(change.part)
        same = [parent.candidate for parent in parents[1:] if parent.texts.get(change.part) == text]
        yield attrs.evolve(change, origin=same[0]) if same else change


def _changes(
    before: Mapping[str, str], after: Mapping[str, str], *, around: int = _AROUND
) -> Iterator[PartChange]:
    for part in dict.fromkeys((*before, *after)):
        old, new = before.get(part, ""), after.get(part, "")
        if old != new:
            yield PartChange(part=short_name(part), pieces=_compared(old, new, around))


def _compared(before: str, after: str, around: int) -> tuple[Piece, ...]:
    pieces = collapsed(word_diff(before, after), around)
    return tuple(Piece(piece.kind, cropped(piece.text)) for piece in pieces)


def _rejection(found: MutationRejected, left: Allowance) -> RejectionView:
    detail = cropped(found.detail, _DETAIL_BYTES)
    is_compared = bool(found.text) and left.is_worth_it
    pieces = _compared(found.before, found.text, _AROUND) if is_compared else ()
    needed = sum(size(piece.text) + _PIECE_BYTES for piece in pieces) + size(detail)
    fits = left.is_worth_it and left.takes(needed)
    return RejectionView(
        value=replace(
            found,
            detail=detail if fits else short_name(found.detail),
            module=short_name(found.module),
            reason=short_name(found.reason),
        ),
        pieces=pieces if fits else (),
        is_cut=not fits,
    )


def reasons(rejections: Iterable[MutationRejected]) -> tuple[tuple[str, int], ...]:
    """Return how many proposals were rejected for each reason, the commonest first."""
    counts: dict[str, int] = {}
    for found in rejections:
        counts[found.reason] = counts.get(found.reason, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _difference(before: Score, after: Score) -> Score:
    return None if before is None or after is None else after - before

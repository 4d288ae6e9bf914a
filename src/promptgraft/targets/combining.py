"""Combines the changes of several candidates that were made from the same parent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import attrs

from promptgraft.ground.text import pieces_in
from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.text_lines import undoubled
from promptgraft.targets.types import Candidate, GepaExample, Module


def combined(
    target: Target,
    onto: Candidate,
    children: Sequence[Candidate],
    *,
    base: Candidate,
    parents: tuple[int, ...],
    examples: Sequence[GepaExample],
    is_child: bool,
) -> tuple[Candidate, list[bool]]:
    """Return a candidate with the changes of several children, as far as they are compatible.

    Returns also whether each child has changed anything in it; it names the modules of these.
    A part that only one side changed is taken from that side. Texts that both sides changed are
    merged line by line; where both rewrote a line or an example, the earlier one wins.

    Args:
        target: what is improved.
        onto: what they are applied to: the first child, or another descendant of their parent.
        children: candidates made from ``base``, the most important first.
        base: their parent.
        parents: positions of the parents of the combination.
        examples: it must render with each of them.
        is_child: whether ``onto`` is one of the children.
    """
    modules = onto.modules if is_child else ()
    contributes = []
    for child in children:
        merged = _with_child(target, onto, child, base=base, parents=parents, examples=examples)
        contributes.append(merged is not None)
        if merged is not None:
            modules = tuple(dict.fromkeys((*modules, *child.modules)))
            onto = attrs.evolve(merged, modules=modules)
    return onto, contributes


def _with_child(
    target: Target,
    onto: Candidate,
    child: Candidate,
    *,
    base: Candidate,
    parents: tuple[int, ...],
    examples: Sequence[GepaExample],
) -> Candidate | None:
    """Return ``onto`` with the changes of a child; None if that changes nothing."""
    try:
        merged = target.merge(base, onto, child, parents=parents, examples=examples, keep_both=True)
    except InvalidProposalError:
        return None
    # The merge has left these texts as `onto` has them where both sides changed them.
    for module in child.modules:
        text = _merged_text(target, module, (base, onto, child))
        if text is None:
            continue
        try:
            merged = target.graft(merged, module, text, parents=merged.parents, examples=examples)
        except InvalidProposalError:
            continue
    return None if merged.digest == onto.digest else merged


def _merged_text(
    target: Target, module: Module, sides: tuple[Candidate, Candidate, Candidate]
) -> str | None:
    """Return a text that both sides changed with the changes of both; None if it stays."""
    if module.is_example:
        return None
    before, first, second = (target.text(module, side) for side in sides)
    if before in (first, second):
        return None
    merged = merge3_onto(before, first, second)
    return merged and undoubled(merged, (first, second))


_MOST_LINES = 1_000  # a comparison line by line takes quadratic time


@attrs.frozen
class _Hunk:
    """A replacement of the lines ``before[begin:end]``; either side may be empty."""

    begin: int
    end: int
    after: Sequence[str]

    @property
    def replaces(self) -> bool:
        return self.begin < self.end and bool(self.after)


def merge3_onto(base: str, first: str, second: str) -> str | None:
    """Return ``first`` with the compatible changes of the second side.

    Args:
        base: the common ancestor.
        first: one side, which wins conflicts.
        second: the other side. Where both replaced the same line its replacement is dropped,
            unless both only added words to that line: then the words of both are kept.

    Returns:
        None if a text has more than 1,000 lines.
    """
    sides = _lines(base, first, second)
    if sides is None:
        return None
    before, first_side, second_side = sides
    mine, theirs = list(_by_line(before, first_side)), list(_by_line(before, second_side))
    agreed = [edit for edit in theirs if not _is_disputed(edit, mine)]
    mine = [_with_words(before, edit, theirs) for edit in mine]
    return "\n".join(_applied(before, mine, agreed))


def _lines(*texts: str) -> list[list[str]] | None:
    lines = [text.split("\n") for text in texts]
    return None if max(map(len, lines)) > _MOST_LINES else lines


def _edits(before: Sequence[str], after: Sequence[str]) -> Iterator[_Hunk]:
    # autojunk keeps it fast on degenerate texts of many equal lines.
    matcher = SequenceMatcher(None, before, after)
    for kind, begin, end, start, stop in matcher.get_opcodes():
        if kind != "equal":
            yield _Hunk(begin, end, after[start:stop])


def _by_line(before: Sequence[str], after: Sequence[str]) -> Iterator[_Hunk]:
    """Yield the edits, those that replace n lines by n others split into one edit per line."""
    for edit in _edits(before, after):
        if edit.end - edit.begin == len(edit.after):
            for place, line in enumerate(edit.after, edit.begin):
                yield _Hunk(place, place + 1, [line])
        else:
            yield edit


def _is_disputed(edit: _Hunk, rivals: Sequence[_Hunk]) -> bool:
    """Return whether another edit replaces the same lines differently."""
    return edit.replaces and any(
        rival.replaces
        and rival.begin < edit.end
        and edit.begin < rival.end
        and rival.after != edit.after
        for rival in rivals
    )


def _with_words(before: Sequence[str], edit: _Hunk, rivals: Sequence[_Hunk]) -> _Hunk:
    """Return an edit with the words that another adds to the same line, if both only add words."""
    old = before[edit.begin : edit.end]
    for rival in rivals:
        same = (edit.begin, edit.end) == (rival.begin, rival.end)
        if same and len(old) == len(edit.after) == len(rival.after) == 1 and old[0].strip():
            words, *changed = (pieces_in(line) for line in (*old, *edit.after, *rival.after))
            mine, theirs = ([*map(_as_one, _edits(words, side))] for side in changed)
            if all(edit.begin == edit.end for edit in (*mine, *theirs)):
                return attrs.evolve(edit, after=["".join(_applied(words, mine, theirs))])
    return edit


def _as_one(edit: _Hunk) -> _Hunk:
    """Return an edit with its words joined into one, since short runs of words may repeat."""
    return attrs.evolve(edit, after=["".join(edit.after)])


def _applied(
    before: Sequence[str], hunks: Sequence[_Hunk], other_hunks: Sequence[_Hunk]
) -> list[str]:
    """Return a text with the edits of both sides; at the same place the first side's come first."""
    dropped = [False] * len(before)
    added: list[list[str]] = [[] for _ in range(len(before) + 1)]
    for edit in (*hunks, *other_hunks):
        dropped[edit.begin : edit.end] = [True] * (edit.end - edit.begin)
    for edit in hunks:
        added[edit.begin] += edit.after
    for edit in other_hunks:
        lines_known = tuple(added[edit.begin])
        added[edit.begin] += [line for line in edit.after if line not in lines_known]
    lines_applied: list[str] = []
    for place, lines in enumerate(added):
        lines_applied += lines
        if place < len(before) and not dropped[place]:
            lines_applied.append(before[place])
    return lines_applied

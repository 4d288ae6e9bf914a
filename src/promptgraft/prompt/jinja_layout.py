"""How the author of a Jinja template laid it out, and override bodies written in the same way.

A body has only text and slots. What the author wrote besides them (comments, definitions, names
such as ``{{name}}``, whitespace that a ``-`` takes away) returns with the lines that a body keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.overrides.parts.body import BodySyntax, Piece, Slot, paired, spell

_LINE = r"[^\n]*\n|[^\n]+"
_OPENING = re.compile(r"\{(?:[{%#])+|\{\Z")
_TRIM_BEFORE = re.compile(r"\A(\{[{%#])-")
_TRIM_AFTER = re.compile(r"-([}%#]\})\s*\Z")
_NEW = -9
"""The position of what the template does not have; beside none of the others."""
RAW = ("raw_begin", "raw_end")
"""The tags around raw text."""


@attrs.frozen
class JinjaSegment:
    """Something at the top level of a template: a text, a tag with all that it encloses, a comment.

    Attributes:
        kind: what it is: ``text``, ``variable``, ``expr``, the keyword of a block, a token.
        text: the text, the name of the variable, or its characters.
        start: its position in the template.
        end: the position behind it.
    """

    kind: str
    text: str
    start: int
    end: int


@attrs.frozen
class Stretch:
    """A line of text, or a slot, together with what stands before it.

    Attributes:
        written: its characters.
        piece: what a body has in its place; an empty text at the end.
        silent: its comments and definitions, which a body does not have.
        trimmed: whitespace behind it that the next tag takes away.
    """

    written: str = ""
    piece: Piece = ""
    silent: str = ""
    trimmed: str = ""

    @property
    def is_tag(self) -> bool:
        """Whether it ends with a tag."""
        return isinstance(self.piece, Slot) or not self.piece

    def then(self, written: str, piece: str, silent: str) -> Stretch:
        """Return the line with more of it."""
        return Stretch(self.written + written, f"{self.piece}{piece}", self.silent + silent)


def stretches_of(source: str, segments: Iterable[tuple[JinjaSegment, Piece]]) -> Iterator[Stretch]:
    """Yield the stretches of a template from its segments and what a body has for each."""
    line, end, is_raw = Stretch(), 0, False
    for segment, piece in segments:
        trimmed, end = source[end : segment.start], segment.end
        characters = source[segment.start : end]
        if isinstance(piece, Slot):
            if line.piece:
                yield attrs.evolve(line, trimmed=trimmed)
                line, trimmed = Stretch(), ""
            yield Stretch(line.written + trimmed + characters, piece, line.silent)
            line = Stretch()
            continue
        if segment.kind in RAW:
            is_raw = segment.kind == RAW[0]
            line = line.then(trimmed + characters, "", "")
        elif not piece:
            line = line.then(trimmed + characters, "", characters)
        for at, text in enumerate(re.findall(_LINE, piece)):
            line = line.then(text if at else trimmed + text, text, "")
            # Raw text stays together with its tags.
            if text.endswith("\n") and not is_raw:
                yield line
                line = Stretch()
    if line.piece:  # a line is the same line whether or not others follow it
        written = _TRIM_AFTER.sub(r"\1", line.written)
        line = attrs.evolve(line, written=f"{written}\n", piece=f"{line.piece}\n")
    if line.written:
        yield line


@attrs.frozen(kw_only=True)
class JinjaLayout:
    """The layout of a template.

    Attributes:
        source: the whole template.
        stretches: the same; its last line has a line feed.
        opaque: the source of each slot that is more than a variable.
    """

    source: str
    stretches: tuple[Stretch, ...]
    opaque: Mapping[str, str]

    def moves(self, pieces: Sequence[Piece]) -> bool:
        """Return whether the opaque slots of a body are others, or in another order."""
        slots = [piece.name for piece in pieces if isinstance(piece, Slot)]
        return [name for name in slots if name in self.opaque] != [*self.opaque]

    def written(self, pieces: Sequence[Piece]) -> str:
        """Return a body as the author would write it: a template that renders to the same text."""
        old = [stretch.piece for stretch in self.stretches]
        raw = [piece for piece in old if isinstance(piece, str) and "\n" in piece[:-1]]
        lines = re.compile("|".join([*map(re.escape, raw), _LINE]))
        last = pieces[-1] if pieces else "\n"
        is_open = isinstance(last, str) and not last.endswith("\n")
        new: list[Piece] = []
        for piece in (*pieces[:-1], f"{last}\n") if is_open else pieces:
            new += lines.findall(piece) if isinstance(piece, str) else [piece]
        new += [piece for piece in old[-1:] if piece == ""]
        if new == old:
            return self.source
        text = "".join(_joined([*self._parts(old, new)]))
        return text.removesuffix("\n") if is_open else text

    def _parts(self, old: Sequence[Piece], new: Sequence[Piece]) -> Iterator[tuple[int, Stretch]]:
        """Yield the stretches of a body: with their positions, those that the template has too."""
        if self.moves(new):
            # What is defined stays before its use, wherever that has been moved.
            yield _NEW, Stretch("".join(stretch.silent for stretch in self.stretches))
            yield from ((_NEW, self._anew(piece)) for piece in new)
            return
        for (begin, end), (first, last) in paired(old, new):
            if old[begin:end] == new[first:last]:
                yield from zip(range(begin, end), self.stretches[begin:end], strict=True)
                continue
            for stretch in self.stretches[begin:end]:
                # Line feeds at the ends of a section are not rendered.
                is_outer = first == 0 and not str(stretch.piece).strip("\n")
                if stretch.silent:
                    yield _NEW, Stretch(stretch.written if is_outer else stretch.silent)
            yield from ((_NEW, self._anew(piece)) for piece in new[first:last])

    def _anew(self, piece: Piece) -> Stretch:
        """Return what a body has beyond the template."""
        if isinstance(piece, str):
            return Stretch(piece, piece)
        usual = self.opaque.get(piece.name) or spell(piece.name, BodySyntax.JINJA)
        return Stretch(usual, piece)


def _joined(parts: Sequence[tuple[int, Stretch]]) -> Iterator[str]:
    """Yield the characters of stretches, so that none changes the meaning of its neighbours."""
    nothing = _NEW, Stretch()
    before = ""
    for at, (position, stretch) in enumerate(parts):
        following, after = parts[at + 1] if at + 1 < len(parts) else nothing
        previous, _ = parts[at - 1] if at else nothing
        is_kept = position != _NEW
        keeps_end = is_kept and following == position + 1
        text = stretch.written
        if not stretch.is_tag and (not is_kept or (text.endswith("{") and not keeps_end)):
            text = _as_text(str(stretch.piece), tag_follows=bool(after.written) and after.is_tag)
        else:
            if before[-1:].isspace() and not (is_kept and previous == position - 1):
                text = _TRIM_BEFORE.sub(r"\1", text)
            if after.written[:1].isspace() and not keeps_end:
                text = _TRIM_AFTER.sub(r"\1", text)
        before = text + (stretch.trimmed if keeps_end else "")
        yield before


def _as_text(text: str, *, tag_follows: bool) -> str:
    """Return a text as a template writes it: nothing in it is a tag."""

    def raw(match: re.Match[str]) -> str:
        if match[0] == "{" and not tag_follows:
            return "{"
        return f"{{% raw %}}{match[0]}{{% endraw %}}"

    return _OPENING.sub(raw, text)

"""Where a text names the answers of a choice."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import attrs

from promptgraft.adapters.offline.words import terms

_MARKER = re.compile(r"[\s>*+•\-]*(?:\d{1,3}[.)]\s)?[\s*_`\"'“\[(]*")
_SEPARATOR = re.compile(r"[*_`\"'”\])\s]*(?:[:=–—→(]|-{1,2}>?(?:\s|$)|$)[\s*_`]*")


@attrs.frozen
class Opening:
    """A line that opens with a choice, such as ``- refunds: money back``.

    Attributes:
        choice: index of the choice.
        before: what stands before its name.
        after: what stands between the name and the rest.
        rest: what the line says of the choice.
    """

    choice: int
    before: str
    after: str
    rest: str


@attrs.frozen
class Names:
    """Finds the answers of a choice in text, in any case, with ``_`` and ``-`` also as spaces.

    Attributes:
        choices: the answers, in order.
    """

    choices: tuple[str, ...]
    _pattern: re.Pattern[str] = attrs.field(init=False, repr=False, eq=False)
    _positions: dict[str, int] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        positions: dict[str, int] = {}
        for index, choice in enumerate(self.choices):
            positions.setdefault(_spaced(choice), index)
        spellings = sorted(filter(None, positions), key=len, reverse=True)
        any_of = "|".join(re.escape(name).replace(r"\ ", "[ _-]") for name in spellings)
        pattern = re.compile(rf"(?<!\w)(?:{any_of or '(?!)'})(?!\w)", re.IGNORECASE)
        object.__setattr__(self, "_positions", positions)
        object.__setattr__(self, "_pattern", pattern)

    def named_in(self, text: str) -> tuple[int, ...]:
        """Return the indices of the choices that ``text`` names, in order, each once."""
        return tuple(dict.fromkeys(index for index, _ in self._found(text)))

    def opening(self, line: str) -> Opening | None:
        """Return how ``line`` opens with a choice; None when it does not."""
        found = next(self._found(line), None)
        marker = _MARKER.match(line)
        if found is None or marker is None:
            return None
        index, name = found
        separator = _SEPARATOR.match(line, name.end())
        if name.start() != marker.end() or separator is None:
            return None
        return Opening(index, line[: name.start()], separator[0], line[separator.end() :])

    def terms_of(self, index: int) -> list[str]:
        """Return the stems of the content words of a choice's own name."""
        return terms(_spaced(self.choices[index]))

    def _found(self, text: str) -> Iterator[tuple[int, re.Match[str]]]:
        for match in self._pattern.finditer(text):
            index = self._positions.get(_spaced(match[0]))
            if index is not None:
                yield index, match


@functools.lru_cache(maxsize=64)
def names_of(choices: tuple[str, ...]) -> Names:
    """Return the finder for ``choices``, built once."""
    return Names(choices)


def _spaced(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()

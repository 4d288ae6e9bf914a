"""Where a text names the answers of a choice."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import attrs

from promptgraft.adapters.offline.words import terms


@attrs.frozen
class Names:
    """Finds the answers of a choice in text, with ``_`` and ``-`` also as spaces.

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
        spellings = sorted(positions, key=len, reverse=True)
        any_of = "|".join(re.escape(name).replace(r"\ ", "[ _-]") for name in spellings if name)
        object.__setattr__(self, "_positions", positions)
        object.__setattr__(
            self, "_pattern", re.compile(rf"(?<!\w)(?:{any_of or '(?!)'})(?!\w)", re.IGNORECASE)
        )

    def found(self, text: str) -> Iterator[tuple[int, re.Match[str]]]:
        """Yield the index of each choice that ``text`` names, with the place."""
        for match in self._pattern.finditer(text):
            index = self._positions.get(_spaced(match[0]))
            if index is not None:
                yield index, match

    def named_in(self, text: str) -> tuple[int, ...]:
        """Return the indices of the choices that ``text`` names, in order, each once."""
        return tuple(dict.fromkeys(index for index, _ in self.found(text)))

    def terms_of(self, index: int) -> list[str]:
        """Return the content stems of a choice's own name."""
        return terms(_spaced(self.choices[index]))


@functools.lru_cache(maxsize=64)
def names_of(choices: Sequence[str]) -> Names:
    """Return the finder for ``choices``, built once."""
    return Names(tuple(choices))


def _spaced(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()

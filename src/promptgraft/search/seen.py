"""The candidates that a run has already seen."""

from __future__ import annotations

from collections.abc import Container, Mapping

import attrs

from promptgraft.serde import HexDigest


class Seen(Container[object]):
    """Digests of candidates, in the order in which they were tried."""

    def __init__(self) -> None:
        self._places: dict[object, int] = {}

    def __contains__(self, digest: object) -> bool:
        return digest in self._places

    def add(self, digest: HexDigest) -> None:
        """Take in a candidate."""
        self._places.setdefault(digest, len(self._places))

    def so_far(self) -> Container[object]:
        """Return those that were tried by now; what comes later is not seen."""
        return _SoFar(self._places, len(self._places))


@attrs.frozen
class _SoFar(Container[object]):
    places: Mapping[object, int]
    count: int

    def __contains__(self, digest: object) -> bool:
        return self.places.get(digest, self.count) < self.count

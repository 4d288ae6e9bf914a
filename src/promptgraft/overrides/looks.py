"""Which runs have looked at which held-out cases: a record beside a store.

Cases that judge one run after another wear out: of many winners, one is better on them by chance.
The record tells how often they were used, whatever became of the runs. It is kept for people: a run
that cannot read or write it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs


@attrs.frozen(kw_only=True)
class Look:
    """A run that was judged by held-out cases.

    Attributes:
        run: its id.
        prompt: what it improved: ``namespace/key``.
        time: when it ended, in UTC, as ISO 8601.
        cases: a digest of each case, by what it asks.
    """

    run: str
    prompt: str
    time: str
    cases: tuple[str, ...]


@runtime_checkable
class LookRecord(Protocol):
    """Keeps looks; both methods never raise for a record that is damaged or out of reach."""

    def looks(self) -> Sequence[Look]:
        """Return the looks so far, the oldest first."""
        ...

    def remember_look(self, look: Look) -> None:
        """Keep a look, unless the run has looked at the same cases before."""
        ...


def record_of(*stores: object) -> LookRecord | None:
    """Return the record beside the first of the stores that keeps one; None if none does."""
    return next((store for store in stores if isinstance(store, LookRecord)), None)


def is_known(look: Look, looks: Sequence[Look]) -> bool:
    """Return whether the run of a look has looked at its cases before."""
    return any(earlier.run == look.run and earlier.cases == look.cases for earlier in looks)

"""A budget for the work that data from outside may cause, shared by the readers of such data.

A small file can ask for unlimited work: five lists of variables are millions of tests, ten nested
references are ten billion values, a compressed table is a thousand times its size. A reader
therefore spends from a budget *before* it does the work.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from promptgraft.errors import ConfigError, DataFormatError

Unit: TypeAlias = Literal["cases", "characters", "iterations", "bytes"]
"""What a budget counts."""


def _at_least_one(_: object, attribute: attrs.Attribute[int], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        name = attribute.name
        raise ConfigError(f"WorkBudget.{name}: expected an integer of at least 1, found {value!r}")


@attrs.define(kw_only=True)
class WorkBudget:
    """The work that is left for reading data; one budget serves all files that are read together.

    Attributes:
        cases: cases, tests or rows.
        characters: characters of text that are built, such as filled templates.
        iterations: values that are visited or copied.
        bytes: bytes that are read or unpacked.
    """

    cases: int = attrs.field(default=1_000_000, validator=_at_least_one)
    characters: int = attrs.field(default=500_000_000, validator=_at_least_one)
    iterations: int = attrs.field(default=10_000_000, validator=_at_least_one)
    bytes: int = attrs.field(default=2_000_000_000, validator=_at_least_one)
    _spent: dict[Unit, int] = attrs.field(factory=dict, init=False, repr=False)

    def spent(self, unit: Unit) -> int:
        """Return how much has been spent."""
        return self._spent.get(unit, 0)

    def spend(self, unit: Unit, amount: int, where: str, mend: str = "") -> None:
        """Take an amount of work that is about to be done.

        Args:
            unit: what is counted.
            amount: how much of it the work takes.
            where: the place that asks for the work, for the message.
            mend: what the user can do about it, for the message.

        Raises:
            DataFormatError: there is not enough left; nothing is spent then.
        """
        total, most = self.spent(unit) + amount, getattr(self, unit)
        if total > most:
            what = f"expected at most {most:,} {unit} in all, found {total:,}"
            raise DataFormatError(f"{where}: {what}{f'; {mend}' if mend else ''}")
        self._spent[unit] = total

"""Texts compared without regard to case or white space."""

from __future__ import annotations

import attrs


# Without slots, so that metrics can inherit it beside their own base.
@attrs.frozen(kw_only=True, slots=False)
class Folding:
    """What does not count when texts are compared; options of the metrics that compare texts.

    Attributes:
        ignore_case: upper and lower case are the same.
        ignore_space: white space at the ends does not count, and inside any is one space.
    """

    ignore_case: bool = False
    ignore_space: bool = False

    def fold(self, text: str) -> str:
        """Return ``text`` in the form in which it is compared."""
        spaced = " ".join(text.split()) if self.ignore_space else text
        return spaced.casefold() if self.ignore_case else spaced

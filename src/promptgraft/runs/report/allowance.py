"""How much of a long run fits into one page."""

from __future__ import annotations

import html

import attrs

from promptgraft.text import visible

TOTAL_BYTES = 10_000_000
"""No report is larger."""

LONGEST_TEXT = 40_000
"""Bytes of one text; of a longer one the head and the tail are shown."""

_LEAST_BYTES = 500

LONGEST_NAME = 160
"""Bytes of a name of a part, a case or a model."""


@attrs.frozen(kw_only=True)
class Limits:
    """How much a page shows.

    Attributes:
        diffs: bytes of the changes of candidates.
        rejections: bytes of rejected proposals.
        answers: bytes of answers.
        listed: candidates, and rejected proposals, that have a line of their own.
    """

    diffs: int = 3_000_000
    rejections: int = 1_800_000
    answers: int = 2_600_000
    listed: int = 2_500

    def halved(self) -> Limits:
        """Return half of all this."""
        return Limits(**{name: value // 2 for name, value in attrs.asdict(self).items()})


def size(text: str) -> int:
    """Return the bytes that ``text`` takes in the page."""
    return len(html.escape(visible(text)).encode("utf-8", "surrogatepass"))


def cropped(text: str, most: int = LONGEST_TEXT) -> str:
    """Return ``text``, or its head and its tail and how much is left out between them.

    Args:
        text: any text.
        most: bytes in the page that it may take, about.
    """
    if (len(text) * 2 <= most and text.isascii() and text.isprintable()) or size(text) <= most:
        return text
    keep = len(text)
    while keep and size(text[: keep * 2 // 3] + text[-(keep // 3) :]) > most:
        keep = keep * 3 // 4
    head, tail = keep * 2 // 3, keep // 3
    left_out = f"{len(text) - head - tail:,} characters left out"
    return f"{text[:head]}\n[… {left_out} …]\n{text[len(text) - tail :]}"


def short_name(name: str) -> str:
    """Return a name, cut when it is long."""
    if size(name) <= LONGEST_NAME:
        return name
    kept = name[:LONGEST_NAME]
    while size(kept) > LONGEST_NAME:
        kept = kept[: len(kept) * 3 // 4]
    return f"{kept}…"


@attrs.define
class Allowance:
    """Bytes that may still be used for something.

    Attributes:
        left: how many.
    """

    left: int

    @property
    def is_worth_it(self) -> bool:
        """Whether there is enough left to look at what might use it."""
        return self.left >= _LEAST_BYTES

    def takes(self, bytes_: int) -> bool:
        """Use ``bytes_`` if there are as many, and tell whether there were."""
        if bytes_ > self.left:
            return False
        self.left -= bytes_
        return True

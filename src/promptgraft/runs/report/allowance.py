"""How much of a long run fits into one page."""

from __future__ import annotations

import html

import attrs

from promptgraft.text import visible

TOTAL_BYTES = 10_000_000
"""No report is larger."""

_LONGEST_TEXT = 40_000
_LONGEST_NAME = 160
_LEAST_BYTES = 500


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


def cropped(text: str, most: int = _LONGEST_TEXT) -> str:
    """Return ``text``, or its head and its tail and how much is left out between them.

    What is returned takes about ``most`` bytes in the page.
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
    """Return the name of a part, a case or a model, cut when it is long."""
    if size(name) <= _LONGEST_NAME:
        return name
    kept = name[:_LONGEST_NAME]
    while size(kept) > _LONGEST_NAME:
        kept = kept[: len(kept) * 3 // 4]
    return f"{kept}…"


@attrs.define
class Allowance:
    """Bytes that are left for something."""

    left: int

    @property
    def is_worth_it(self) -> bool:
        """Whether there is enough left to look at what might use it."""
        return self.left >= _LEAST_BYTES

    def takes(self, bytes_: int) -> bool:
        """Use ``bytes_`` if there are as many, and tell whether there were."""
        fits = bytes_ <= self.left
        self.left -= bytes_ if fits else 0
        return fits

"""Keeps secrets, and whatever else does not belong there, out of messages."""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

HIDDEN = "[secret]"
LONGEST_MESSAGE = 500

# What looks like a key although nobody told us of it: another account's key that a gateway
# repeats, or ours in the shortened form in which a provider quotes it.
_SHAPES = (
    re.compile(r"\b(?:sk|pk|rk)-[\w*.…-]{6,}"),
    re.compile(r"\b(?:Bearer|Basic)\s+[\w*.…~+/=-]{6,}", re.IGNORECASE),
    re.compile(
        r"\b(?:proxy-)?(?:authorization|(?:x-)?api-key)\b[\"']?\s*[:=]\s*[\"']?[^\s\"',;&}]+",
        re.IGNORECASE,
    ),
    re.compile(r"(?<=://)[^\s/@\"']+(?=@)"),
)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with :data:`HIDDEN` in place of ``secrets`` and of what looks like a key.

    Secrets are also found where they are percent-encoded, escaped as in JSON, or part of
    something in base64.
    """
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    return text


def one_line(text: str, secrets: Iterable[str], *, longest: int = LONGEST_MESSAGE) -> str:
    """Return ``text`` redacted, in one line without control characters, shortened in the middle.

    Args:
        text: anything that came from outside.
        secrets: what must not be in it.
        longest: characters, at least 3.
    """
    hidden = _shortened(redact(text, secrets), 20 * longest)  # much more than will remain
    printable = "".join(
        " " if unicodedata.category(character).startswith("C") else character
        for character in hidden
    )
    return _shortened(" ".join(printable.split()), longest)


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for encoded in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield encoded
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from _base64_forms(secret.encode())


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield what base64 makes of ``secret``, wherever in a longer text it stands."""
    if len(secret) < 6:
        return
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret).decode().rstrip("=")
        first = -(-before * 8 // 6)
        last = (before + len(secret)) * 8 // 6
        inner = encoded[first:last]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")

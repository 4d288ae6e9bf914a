"""Keeping secrets out of texts that others read."""

from __future__ import annotations

import functools
import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

SENSITIVE = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
"""Names of headers and variables that carry secrets."""

HIDDEN = "[secret]"
_SHORTEST_VALUE = 8
"""Characters of a variable's value; a shorter one may be an ordinary word."""

# Text that looks like a key but is not a known secret: another account's key repeated by a
# gateway, or our own in the abbreviated form in which providers quote it.
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
    """Return ``text`` with :data:`HIDDEN` in place of ``secrets`` and anything like a key.

    Secrets are also found when percent-encoded, escaped as in JSON, or inside base64.
    """
    for form in all_forms(tuple(secrets)):
        text = text.replace(form, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    return text


def of_environment() -> tuple[str, ...]:
    """Return the values of environment variables whose names tell that they are secret."""
    return tuple(
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST_VALUE and SENSITIVE.search(name)
    )


@functools.lru_cache(maxsize=64)
def all_forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """Return all encodings of ``secrets``, longest first: one may contain another."""
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    return tuple(sorted(forms, key=len, reverse=True))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    data = secret.encode(errors="surrogatepass")  # a variable need not be UTF-8
    for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield from (encoded, re.sub("%[0-9A-F]{2}", lambda hex_: hex_[0].lower(), encoded))
    escaped = json.dumps(secret)[1:-1]
    yield from (escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1])
    yield from (json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret))
    yield from _base64_forms(data)


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the base64 encodings of ``secret`` at every alignment within a longer text."""
    # The fixed middle of anything shorter would match in ordinary text.
    if len(secret) < 6:
        return
    for before in range(3):
        # Only the characters that depend on no neighbouring byte are the same in any text.
        encoded = b64encode(b"\0" * before + secret).decode().rstrip("=")
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        inner = encoded[first:last]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))

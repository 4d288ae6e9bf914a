"""Checks of identifiers and texts in stores.

Invalid ones raise ``InvalidIdentifierError`` or ``InvalidOverrideError``, naming the place, what
was expected and what was found.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from promptgraft.errors import ConfigError, InvalidIdentifierError, InvalidOverrideError
from promptgraft.ground.serde import shown
from promptgraft.overrides.parts.descriptors import SectionPath

MAX_BODY_CHARS = 1_000_000
_LONGEST_KEY = 64

# Also names of files and folders: no capitals, which some file systems do not tell apart, and no
# leading dot, which archives and locks have.
_KEY = r"[a-z0-9][a-z0-9_-]{0,63}"
_TAG = r"[a-z0-9][a-z0-9._-]{0,63}"
_NS = rf"(?=.{{1,200}}\Z){_KEY}(/{_KEY})*"


def check_key(key: object, what: str) -> str:
    """Return ``key`` if it is an identifier: lower-case letters, digits, `_` and `-`, up to 64."""
    expected = "1 to 64 lower-case letters, digits, `_` or `-`, starting with a letter or digit"
    return _identifier(key, _KEY, f"{what}: expected {expected}")


def check_section_key(key: object) -> str:
    """Return ``key`` if it names a section: as :func:`check_key`, with letters of any script."""
    if isinstance(key, str) and (_fits(_KEY, key) or _is_key_of_a_script(key)):
        return key
    raise InvalidIdentifierError(
        "section key: expected 1 to 64 lower-case letters, digits, `_` or `-`, starting with a "
        f"letter or digit; found {shown(key)}"
    )


def _is_key_of_a_script(text: str) -> bool:
    # Composed and in lower case, so that what looks the same is the same.
    plain = unicodedata.normalize("NFC", text).lower() == text
    return plain and len(text) <= _LONGEST_KEY and text[:1].isalnum() and all(map(in_key, text))


def in_key(character: str) -> bool:
    """Return whether a character may stand in the key of a section."""
    # Marks are vowels in some scripts.
    is_mark = unicodedata.category(character)[0] == "M"
    return character in "-_" or character.isalnum() or is_mark


def check_store(store: object, name: str = "overrides_store") -> None:
    """Raise a ``ConfigError`` for what is no store, such as the class of one."""
    if isinstance(store, type) or not callable(getattr(store, "resolve", None)):
        raise ConfigError(f"{name}: expected a store of overrides, found {shown(store)}")


def check_tag(tag: object) -> str:
    """Return ``tag`` if it is an identifier, in which a tag may also have dots."""
    expected = (
        "1 to 64 lower-case letters, digits, `.`, `_` or `-`, starting with a letter or digit"
    )
    return _identifier(tag, _TAG, f"tag: expected {expected}")


def check_ns(ns: object) -> str:
    """Return ``ns`` if it is identifiers joined by `/`, up to 200 characters."""
    expected = "lower-case identifiers joined by `/`, at most 200 characters"
    return _identifier(ns, _NS, f"ns: expected {expected}")


def _identifier(text: object, pattern: str, expected: str) -> str:
    if isinstance(text, str) and _fits(pattern, text):
        return text
    raise InvalidIdentifierError(f"{expected}; found {shown(text)}")


# A run looks up the same few names in every rendering.
@functools.lru_cache(maxsize=1024)
def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def check_text(text: object, where: str) -> str:
    """Return ``text`` if it is a string of bounded length that UTF-8 can encode."""
    if not isinstance(text, str):
        raise InvalidOverrideError(f"{where}: expected text, found {shown(text)}")
    if len(text) > MAX_BODY_CHARS:
        raise InvalidOverrideError(
            f"{where}: expected at most {MAX_BODY_CHARS} characters, found {len(text)}"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidOverrideError(
            f"{where}: expected Unicode text, found a lone surrogate at character {error.start}"
        ) from None
    return text


def check_path(path: object) -> SectionPath:
    """Return ``path`` if it is a tuple of at least one key."""
    if isinstance(path, tuple) and path and all(isinstance(key, str) for key in path):
        return path
    raise InvalidOverrideError(
        "path: expected a tuple of section keys such as ('policies', 'refunds'), "
        f"found {shown(path)}"
    )


def check_not_blank(text: object, where: str) -> None:
    """Refuse a blank text, or one that :func:`check_text` refuses."""
    if not check_text(text, where).strip():
        raise InvalidOverrideError(f"{where}: expected a text, found nothing")


def check_texts(part: str, *texts: object) -> None:
    """Refuse texts that :func:`check_text` refuses; ignores None."""
    for text in texts:
        if text is not None:
            check_text(text, part)


def shown_hash(digest: str) -> str:
    """Return the first 12 digits, as messages show hashes."""
    return str(digest)[:12]

"""Identifiers, texts and provenance that stores take."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from promptgraft.errors import InvalidIdentifierError, InvalidOverrideError
from promptgraft.overrides.body import kept_names
from promptgraft.overrides.entries import Entry, SectionPath
from promptgraft.overrides.parts import SectionDescriptor
from promptgraft.overrides.types import Provenance
from promptgraft.serde import shown

MAX_BODY_CHARS = 1_000_000

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TAG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MAX_NS_CHARS = 200


def check_key(key: object, what: str) -> str:
    """Return ``key`` if it is an identifier: lower-case letters, digits, `_` and `-`, up to 64.

    Raises:
        InvalidIdentifierError: naming ``what`` the key is of.
    """
    if isinstance(key, str) and _is_key(key):
        return key
    raise InvalidIdentifierError(
        f"{what}: expected 1 to 64 lower-case letters, digits, `_` or `-`, "
        f"starting with a letter or digit; found {shown(key)}"
    )


def check_tag(tag: object) -> str:
    """Return ``tag`` if it is an identifier; a tag may also hold dots.

    Raises:
        InvalidIdentifierError: otherwise.
    """
    if isinstance(tag, str) and _is_tag(tag):
        return tag
    raise InvalidIdentifierError(
        "tag: expected 1 to 64 lower-case letters, digits, `.`, `_` or `-`, "
        f"starting with a letter or digit; found {shown(tag)}"
    )


def check_ns(ns: object) -> str:
    """Return ``ns`` if it is identifiers joined by `/`, up to 200 characters.

    Raises:
        InvalidIdentifierError: otherwise.
    """
    if isinstance(ns, str) and _is_ns(ns):
        return ns
    raise InvalidIdentifierError(
        "ns: expected lower-case identifiers joined by `/`, at most "
        f"{_MAX_NS_CHARS} characters; found {shown(ns)}"
    )


# A run looks up the same few names in every rendering.
@functools.lru_cache(maxsize=1024)
def _is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


@functools.lru_cache(maxsize=1024)
def _is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


@functools.lru_cache(maxsize=1024)
def _is_ns(text: str) -> bool:
    return len(text) <= _MAX_NS_CHARS and all(map(_KEY.fullmatch, text.split("/")))


def check_text(text: object, where: str) -> str:
    """Return ``text`` if it is a string that UTF-8 can hold and of bounded length.

    Raises:
        InvalidOverrideError: otherwise.
    """
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
    """Return ``path`` if it is a tuple of at least one key.

    Raises:
        InvalidOverrideError: otherwise.
    """
    if isinstance(path, tuple) and path and all(isinstance(key, str) for key in path):
        return path
    raise InvalidOverrideError(
        "path: expected a tuple of section keys such as ('policies', 'refunds'), "
        f"found {shown(path)}"
    )


def check_entry_texts(entry: Entry) -> None:
    """Refuse an override with a text that UTF-8 cannot hold or that is too long.

    Raises:
        InvalidOverrideError: naming the part.
    """
    for text in _texts_in(entry):
        check_text(text, entry.part)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts_in(key)
            yield from _texts_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts_in(item)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _texts_in(getattr(value, field.name))


def check_provenance(provenance: Provenance) -> None:
    """Refuse a provenance that a store could not give back.

    Raises:
        InvalidOverrideError: a text is not Unicode or too long, or a score is no finite number.
    """
    if provenance.run_id is not None:
        check_text(provenance.run_id, "provenance.run_id")
    check_text(provenance.note, "provenance.note")
    for name, score in provenance.scores.items():
        check_text(name, "provenance.scores: name")
        if not _is_finite(score):
            raise InvalidOverrideError(
                f"provenance.scores: {shown(name)}: expected a finite number, found {shown(score)}"
            )


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # A comparison, because an integer may be too large for a float.
    return abs(value) <= sys.float_info.max


def lost_placeholders(section: SectionDescriptor, body: str) -> tuple[str, ...]:
    """Return the placeholders of the source that ``body`` does not keep, in source order."""
    kept = kept_names(body, section.syntax, frozenset(section.placeholders))
    return tuple(name for name in section.placeholders if name not in kept)


def shown_hash(digest: str) -> str:
    """Return the first 12 digits, as messages show hashes."""
    return str(digest)[:12]

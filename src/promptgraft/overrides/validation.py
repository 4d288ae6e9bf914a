"""What may be written to a store, and which of what is stored still applies."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

import attrs

from promptgraft.errors import (
    HashMismatchError,
    InvalidIdentifierError,
    InvalidOverrideError,
    UnknownPartError,
)
from promptgraft.overrides.body import parse_body, slot_names, spell
from promptgraft.overrides.types import (
    AppliedOverride,
    PromptDescriptor,
    PromptOverride,
    Provenance,
    SectionDescriptor,
    SectionOverride,
    SectionPath,
    SkippedOverride,
    SkipReason,
    section_part,
    show_path,
)
from promptgraft.serde import did_you_mean, shown

MAX_BODY_CHARS = 1_000_000

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TAG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MAX_NS_CHARS = 200


def check_key(key: object, what: str) -> str:
    """Return ``key`` if it is an identifier: lower-case letters, digits, `_` and `-`, up to 64.

    Raises:
        InvalidIdentifierError: naming ``what`` the key is of.
    """
    if isinstance(key, str) and _KEY.fullmatch(key):
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
    if isinstance(tag, str) and _TAG.fullmatch(tag):
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
    parts = ns.split("/") if isinstance(ns, str) and len(ns) <= _MAX_NS_CHARS else ["/"]
    if isinstance(ns, str) and all(_KEY.fullmatch(part) for part in parts):
        return ns
    raise InvalidIdentifierError(
        "ns: expected lower-case identifiers joined by `/`, at most "
        f"{_MAX_NS_CHARS} characters; found {shown(ns)}"
    )


def require_section(descriptor: PromptDescriptor, path: SectionPath) -> SectionDescriptor:
    """Return the overridable section at ``path``.

    Raises:
        UnknownPartError: when there is none, with a list of those that exist.
    """
    found = descriptor.section(path)
    if found is not None and found.overridable:
        return found
    known = [show_path(section.path) for section in descriptor.sections if section.overridable]
    problem = "has no section" if found is None else "does not allow overrides of section"
    wanted = show_path(path)
    raise UnknownPartError(
        f"prompt `{descriptor.ns}/{descriptor.key}` {problem} `{wanted}`"
        f"{did_you_mean(wanted, known) if found is None else ''}; overridable sections: "
        + (", ".join(f"`{name}`" for name in known) or "none")
    )


def check_section_override(descriptor: PromptDescriptor, override: SectionOverride) -> None:
    """Refuse a section override that would not apply as it stands.

    Raises:
        UnknownPartError: the section does not exist or is not overridable.
        HashMismatchError: it was written for another source.
        InvalidOverrideError: the body is not text, too long, not Unicode, or loses a placeholder.
    """
    section = require_section(descriptor, override.path)
    where = f"section `{show_path(section.path)}`"
    if override.expected_hash != section.content_hash:
        raise HashMismatchError(
            f"{where}: the override was written for source {shown_hash(override.expected_hash)}, "
            f"the source is now {shown_hash(section.content_hash)}; write it again for this source"
        )
    check_text(override.body, where)
    if lost := lost_placeholders(section, override.body):
        names = ", ".join(f"`{spell(name, section.syntax)}`" for name in lost)
        raise InvalidOverrideError(f"{where} lost the placeholder {names}; keep it in the body")


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
    names = frozenset(section.placeholders)
    kept = slot_names(parse_body(body, section.syntax, names))
    return tuple(name for name in section.placeholders if name not in kept)


def shown_hash(digest: str) -> str:
    """Return the first 12 digits, as messages show hashes."""
    return str(digest)[:12]


@attrs.frozen(kw_only=True)
class Resolution:
    """Which overrides apply to a prompt as it is now."""

    sections: Mapping[SectionPath, SectionOverride]
    applied: tuple[AppliedOverride, ...]
    skipped: tuple[SkippedOverride, ...]


NOTHING = Resolution(sections={}, applied=(), skipped=())


def resolve_override(descriptor: PromptDescriptor, override: PromptOverride | None) -> Resolution:
    """Split what a store holds into what applies and what is skipped, and why."""
    if not override:
        return NOTHING
    fresh: dict[SectionPath, SectionOverride] = {}
    applied: list[AppliedOverride] = []
    skipped: list[SkippedOverride] = []
    for path, section_override in override.sections.items():
        section = descriptor.section(path)
        reason = skip_reason(descriptor, section_override)
        part = section_part(path)
        if reason is None:
            fresh[path] = section_override
            applied.append(AppliedOverride(part=part, expected_hash=section_override.expected_hash))
            continue
        skipped.append(
            SkippedOverride(
                part=part,
                reason=reason,
                expected_hash=section_override.expected_hash,
                found_hash=section.content_hash if section else None,
            )
        )
    return Resolution(sections=fresh, applied=tuple(applied), skipped=tuple(skipped))


def is_fresh(descriptor: PromptDescriptor, override: SectionOverride) -> bool:
    """Tell whether a section override applies to the prompt as it is now."""
    return skip_reason(descriptor, override) is None


def skip_reason(descriptor: PromptDescriptor, override: SectionOverride) -> SkipReason | None:
    """Return why a section override does not apply to the prompt as it is now; None if it does."""
    section = descriptor.section(override.path)
    if section is None:
        return SkipReason.UNKNOWN_PART
    if not section.overridable:
        return SkipReason.NOT_OVERRIDABLE
    if override.expected_hash != section.content_hash:
        return SkipReason.STALE
    if lost_placeholders(section, override.body):
        return SkipReason.LOST_PLACEHOLDER
    return None

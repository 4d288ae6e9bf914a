"""Content hashes of prompt parts: an override is applied only to the text it was written for."""

from __future__ import annotations

from collections.abc import Iterable

from promptgraft.overrides.body import BodySyntax
from promptgraft.serde import HexDigest, digest


def hash_section(template: str, syntax: BodySyntax, placeholders: Iterable[str] = ()) -> HexDigest:
    """Hash what an override of a section replaces: its template and how it is read.

    Args:
        template: the source.
        syntax: how it is written.
        placeholders: those of a plain text, in any order; other syntaxes spell theirs in the
            template.
    """
    named = {"placeholders": sorted(set(placeholders))} if placeholders else {}
    return digest({"syntax": syntax, "template": template, **named})

"""Content hashes of prompt parts: an override is applied only to the text it was written for."""

from __future__ import annotations

from promptgraft.overrides.body import BodySyntax
from promptgraft.serde import HexDigest, digest


def hash_section(template: str, syntax: BodySyntax) -> HexDigest:
    """Hash what an override of a section replaces: its template and how it is read."""
    return digest({"syntax": syntax, "template": template})

"""Templates of nunjucks as templates of Jinja, which differ in a few words inside of tags."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

# What does not end is read to its end, or it would be searched again from each of its places.
_TAG = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)
_TEXT = re.compile(r"""("(?:\\.|[^"\\])*(?:"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z))""", re.DOTALL)
_ENVIRONMENT = re.compile(r"""\{\{-?\s*env(?:\.(\w+)|\[["'](\w+)["']\])[^{}]*\}\}""")
_FILTER = re.compile(r"\|\s*([A-Za-z_]\w*)(?:\([^()]*\))?")
_REWRITES = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        ("!==", "!="),
        ("===", "=="),
        (r"\.length\b(?!\s*\()", "|length"),
        (r"\belseif\b", "elif"),
        (r"\b(?:null|undefined)\b", "none"),
        (r"\.toUpperCase\(", ".upper("),
        (r"\.toLowerCase\(", ".lower("),
        (r"\.trim\(", ".strip("),
        (r"\.startsWith\(", ".startswith("),
        (r"\.endsWith\(", ".endswith("),
    )
)


@attrs.frozen(kw_only=True)
class Converted:
    """A template of Jinja.

    Attributes:
        text: the template.
        dropped: filters that Jinja does not have; they are code of the other tool.
        unset: variables of the environment that are left empty.
    """

    text: str
    dropped: tuple[str, ...]
    unset: tuple[str, ...]


def as_jinja(template: str, environment: Mapping[str, str] | None = None) -> Converted:
    """Convert a template of nunjucks.

    ``environment`` holds the values of ``{{ env.NAME }}``; those of this process are not read.
    """
    if "{{" not in template and "{%" not in template:
        return Converted(text=template, dropped=(), unset=())
    from promptgraft.prompt.sandbox import sandbox

    filters, values = sandbox().filters, environment or {}
    dropped: list[str] = []
    unset: list[str] = []

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in values:
            unset.append(name)
        return values.get(name, "")

    def filtered(found: re.Match[str]) -> str:
        if found[1] in filters:
            return found[0]
        dropped.append(found[1])
        return ""

    def tag(found: re.Match[str]) -> str:
        # Every second piece is a text in quotes, which stays as it is.
        pieces = _TEXT.split(found[0])
        for at in range(0, len(pieces), 2):
            for pattern, new in _REWRITES:
                pieces[at] = pattern.sub(new, pieces[at])
            pieces[at] = _FILTER.sub(filtered, pieces[at])
        return "".join(pieces)

    text = _TAG.sub(tag, _ENVIRONMENT.sub(value, template))
    unique = (tuple(dict.fromkeys(names)) for names in (dropped, unset))
    return Converted(text=text, **dict(zip(("dropped", "unset"), unique, strict=True)))

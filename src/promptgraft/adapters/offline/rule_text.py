"""Edits the text of rules, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set

import attrs

from promptgraft.adapters.offline.names import Names, Opening
from promptgraft.adapters.offline.words import term

_BULLET = re.compile(r"\s*[-*+•]\s")


@attrs.frozen(kw_only=True)
class Changes:
    """What is to be changed in a text of rules.

    Attributes:
        added: by choice, the phrases that its rule gets.
        dropped: by choice, the stems that go out of its rule.
    """

    added: Mapping[int, Sequence[str]]
    dropped: Mapping[int, Set[str]]


def edited(text: str, names: Names, changes: Changes) -> str:
    """Return ``text`` with the rules changed.

    The first line that opens with a choice (``- refunds: money back``) gets its phrases;
    without such a line, one is written below, in the style of the others. Words are dropped
    only from phrases that hold nothing but content words, so no sentence is torn.
    """
    lines: list[str] = []
    left = {choice: phrases for choice, phrases in changes.added.items() if phrases}
    style = Opening(0, "- ", ": ", "")
    for line in text.split("\n"):
        opening = names.opening(line)
        if opening is not None and opening.rest.strip():
            style = opening
            dropped = changes.dropped.get(opening.choice, frozenset())
            rest = _edited_rule(opening.rest, left.pop(opening.choice, ()), dropped)
            lines.append(line[: len(line) - len(opening.rest)] + rest)
        else:
            lines.append(line)
    if left and lines[-1].strip() and not _BULLET.match(lines[-1]):
        lines.append("")
    for choice, phrases in sorted(left.items()):
        rule = ", ".join(dict.fromkeys(phrases))
        lines.append(f"{style.before}{names.choices[choice]}{style.after}{rule}")
    return "\n".join(lines)


def cut(text: str, max_chars: int | None, placeholders: Iterable[str]) -> str:
    """Return as many of the first words of ``text`` as fit, and every placeholder."""
    if max_chars is None or len(text) <= max_chars:
        return text
    markers = list(placeholders)
    room = max_chars - sum(len(marker) + 1 for marker in markers)
    # At a space, so that no marker is cut into another one.
    fitting = text[: max(0, room) + 1]
    head = fitting[: max(0, fitting.rfind(" "), fitting.rfind("\n"))]
    return "\n".join((head, *(marker for marker in markers if not _shows(head, marker))))


def _shows(text: str, marker: str) -> bool:
    # Escaped, or as the start of a longer name, it is ordinary text.
    return re.search(rf"(?<![$\\]){re.escape(marker)}(?![_a-zA-Z0-9])", text) is not None


def _edited_rule(rule: str, added: Sequence[str], dropped: Set[str]) -> str:
    if not added and not dropped:
        return rule
    first, *others = rule.rstrip().split(", ")
    kept = [first, *(shorter for phrase in others if (shorter := _without(phrase, dropped)))]
    known = {phrase.strip(" .") for phrase in kept}
    new = [phrase for phrase in dict.fromkeys(added) if phrase not in known]
    if new:
        kept[-1] = kept[-1].rstrip(" .")
    return ", ".join((*kept, *new))


def _without(phrase: str, dropped: Set[str]) -> str:
    words = phrase.split()
    if not dropped or not all(word.isalpha() and term(word.lower()) for word in words):
        return phrase
    return " ".join(word for word in words if term(word.lower()) not in dropped)

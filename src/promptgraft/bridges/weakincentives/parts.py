"""The parts of a weakincentives prompt, and their texts in overrides."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from string import Template
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.text import listed
from promptgraft.targets.base import InvalidProposalError, RejectionReason, check_length
from promptgraft.targets.types import Module

MAX_TOOL_CHARS = 200
"""The maximum length of a tool description in weakincentives."""

_EXAMPLES = re.compile(r"\b(tool|task)[ _-]*examples?\b", re.IGNORECASE)
_ASCII = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."})


@attrs.frozen
class SectionBody(Module):
    """The body of a section, in the language of ``string.Template``."""

    path: tuple[str, ...]
    kind = "section"

    @property
    def name(self) -> str:
        return f"section {'/'.join(self.path)}"


@attrs.frozen
class ToolDescription(Module):
    """The description of a tool."""

    tool: str
    kind = "tool"

    @property
    def name(self) -> str:
        return f"tool {self.tool}"


Part = SectionBody | ToolDescription


def sources_of(prompt: Any, parts: Sequence[str] | None) -> Mapping[Part, str]:
    """Return the parts that may change, with their texts in the source.

    Args:
        prompt: the ``Prompt``.
        parts: names of the parts that may change; None for all that accept overrides.

    Raises:
        ConfigError: a name is unknown, or no part accepts overrides.
    """
    sources = dict(_overridable(prompt))
    by_name = {part.name: part for part in sources}
    for name in parts or ():
        if name not in by_name:
            if _EXAMPLES.search(name):
                raise ConfigError(
                    f"parts: `{name}` is not a part: weakincentives {version('weakincentives')} "
                    "keeps overrides of tool and task examples and does not render them; leave it "
                    "out"
                )
            near = did_you_mean(name, list(by_name))
            raise ConfigError(f"parts: no part `{name}`{near}; there are {listed(by_name)}")
    chosen = {part: text for part, text in sources.items() if parts is None or part.name in parts}
    if not chosen:
        raise ConfigError("parts: expected a part that accepts overrides, found none")
    return chosen


def _overridable(prompt: Any) -> Iterator[tuple[Part, str]]:
    paths = {section.path for section in prompt.descriptor.sections}
    tools = {tool.name for tool in prompt.descriptor.tools}
    for node in prompt.sections:
        if node.path in paths:
            yield SectionBody(node.path), _plain(node.section.original_body_template())
        for tool in node.section.tools():
            if tool.name in tools:
                yield ToolDescription(tool.name), tool.description


def _plain(body: str) -> str:
    """Return the body of a section without common indentation, as weakincentives renders it."""
    return textwrap.dedent(body).strip()


def text_in(override: Any, part: Part) -> str | None:
    """Return the text of a part in a weakincentives override; None if it has none."""
    if isinstance(part, ToolDescription):
        tool = override.tool_overrides.get(part.tool)
        return None if tool is None else tool.description
    section = override.sections.get(part.path)
    return None if section is None else _plain(section.body)


def override_with(base: Any, texts: Mapping[Part, str | None], *, descriptor: Any, tag: str) -> Any:
    """Return a weakincentives override with new texts.

    Args:
        base: the override to start from, whose other entries are kept; None for an empty one.
        texts: the text of each part; None for that of the source.
        descriptor: the descriptor of the prompt.
        tag: the tag of the new override.
    """
    from weakincentives.prompt.overrides import PromptOverride

    sections = dict(base.sections) if base else {}
    tools = dict(base.tool_overrides) if base else {}
    for part, text in texts.items():
        if isinstance(part, ToolDescription):
            _put_tool(tools, part, text, descriptor)
        else:
            _put_section(sections, part, text, descriptor)
    return PromptOverride(
        ns=descriptor.ns,
        prompt_key=descriptor.key,
        tag=tag,
        sections=sections,
        tool_overrides=tools,
        task_example_overrides=base.task_example_overrides if base else (),
    )


def _put_section(
    sections: dict[tuple[str, ...], Any], part: SectionBody, text: str | None, descriptor: Any
) -> None:
    from weakincentives.prompt.overrides import SectionOverride

    removed = sections.pop(part.path, None)
    if text is not None:
        [content_hash] = [
            section.content_hash for section in descriptor.sections if section.path == part.path
        ]
        sections[part.path] = SectionOverride(
            path=part.path,
            expected_hash=content_hash,
            body=text,
            summary=removed and removed.summary,
            visibility=removed and removed.visibility,
        )


def _put_tool(
    tools: dict[str, Any], part: ToolDescription, text: str | None, descriptor: Any
) -> None:
    from weakincentives.prompt.overrides import ToolOverride

    removed = tools.pop(part.tool, None)
    parameters = dict(removed.param_descriptions) if removed else {}
    # Descriptions of parameters are not ours to change, so they outlive the description.
    if text is not None or parameters:
        [contract_hash] = [
            tool.contract_hash for tool in descriptor.tools if tool.name == part.tool
        ]
        tools[part.tool] = ToolOverride(
            name=part.tool,
            expected_contract_hash=contract_hash,
            description=text,
            param_descriptions=parameters,
        )


def placeholders_in(template: str) -> tuple[str, ...]:
    """Return the placeholders of a template as written, each once."""
    placeholders = {_named(match): match[0] for match in Template.pattern.finditer(template)}
    return tuple(marker for name, marker in placeholders.items() if name)


def fitting(part: Part, source: str, proposal: str) -> str:
    """Return a proposal in a form that weakincentives accepts.

    In a section, every ``$`` that does not begin a placeholder of the source becomes literal. In
    the description of a tool, characters with an ASCII equivalent are replaced.

    Raises:
        InvalidProposalError: it is empty or too long, has characters that are not allowed, or
            lost a placeholder.
    """
    text = proposal.strip()
    if not text:
        raise InvalidProposalError(RejectionReason.EMPTY, "the text is empty")
    if isinstance(part, ToolDescription):
        return _in_ascii(text)
    return _literal_but(text, placeholders_in(source))


def _literal_but(text: str, placeholders: Sequence[str]) -> str:
    names = {marker.strip("${}"): marker for marker in placeholders}
    names_kept = set()

    def literal(match: Any) -> str:
        name = _named(match)
        if name in names:
            names_kept.add(name)
        return str(match[0] if name in names or match["escaped"] else f"${match[0]}")

    escaped = Template.pattern.sub(literal, text)
    if lost := [marker for name, marker in names.items() if name not in names_kept]:
        raise InvalidProposalError(
            RejectionReason.LOST_PLACEHOLDER, f"the text has lost {listed(lost)}"
        )
    return escaped


def _named(match: Any) -> str:
    return str(match["named"] or match["braced"] or "")


def _in_ascii(text: str) -> str:
    # Typographic characters are what models write unasked; others need a new text.
    folded = unicodedata.normalize("NFKC", text.translate(_ASCII))
    if odd := sorted({char for char in folded if not char.isascii()}):
        raise InvalidProposalError(
            RejectionReason.UNUSABLE_TEXT,
            f"the description of a tool is ASCII; write it without {' '.join(odd[:10])}",
        )
    check_length(folded, MAX_TOOL_CHARS)
    return folded

"""What prompts show of themselves in notebooks and in ``print``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptgraft.notebook import Card, LongText, Table
from promptgraft.parts.descriptors import show_path
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.text import counted


def template_card(template: PromptTemplate[Any]) -> Card:
    """Return what a template shows of itself: its sections with their source."""
    fields = [("answer", _kind(template.output_type))]
    if template.name is not None:
        fields.insert(0, ("name", template.name))
    head = ("section", "characters", "placeholders", "tools", "title")
    return Card(
        title=f"{template.ns}/{template.key}",
        lead=f"a prompt template with {counted(len(template.walked), 'section')}",
        fields=tuple(fields),
        blocks=(
            Table(head=head, rows=(_row(show_path(p), found) for p, found in template.walked)),
            *(
                LongText(title=f"section {show_path(path)}", text=section.template)
                for path, section in template.walked
                if section.template
            ),
        ),
    )


def _row(path: str, section: MarkdownSection) -> tuple[str, ...]:
    tools = ", ".join(tool.name for tool in section.tools)
    frozen = "" if section.overridable else " (not overridable)"
    placeholders = ", ".join(section.source.placeholders)
    return path, f"{len(section.template)}", placeholders, tools, f"{section.title}{frozen}"


def prompt_card(prompt: Prompt[Any]) -> Card:
    """Return what a prompt shows of itself: its template, its store and what is bound."""
    card = template_card(prompt.template)
    store = prompt.overrides_store
    overrides = (
        "none" if store is None else f"tag {prompt.overrides_tag} of a {type(store).__name__}"
    )
    bound = ", ".join(type(param).__name__ for param in prompt.params) or "nothing"
    return Card(
        title=card.title,
        lead=card.lead.replace("a prompt template", "a prompt"),
        fields=(*card.fields, ("overrides", overrides), ("bound", bound)),
        blocks=card.blocks,
    )


def rendered_card(rendered: RenderedPrompt[Any]) -> Card:
    """Return what a rendered prompt shows of itself: its text, and what overrides did to it."""
    return Card(
        title=f"{rendered.ns}/{rendered.key}",
        lead=f"as a model receives it: {counted(len(rendered.text), 'character')}",
        fields=(
            ("answer", _kind(rendered.output_type)),
            ("tools", _names([tool.name for tool in rendered.tools])),
            ("overridden", _names([found.part for found in rendered.applied])),
            (
                "not applied",
                _names([f"{found.part} ({found.reason})" for found in rendered.skipped]),
            ),
        ),
        blocks=(LongText(title="text", text=rendered.text, is_open=True),),
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _kind(output_type: Any) -> str:
    if output_type is None or output_type is str:
        return "text"
    if options := options_of(output_type):
        return f"one of {', '.join(options)}"
    return str(output_type.__name__)

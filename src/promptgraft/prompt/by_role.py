"""A rendered prompt by the roles of its sections: the system's and the user's text."""

from __future__ import annotations

import json

import attrs

from promptgraft.ground.content import Content
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection
from promptgraft.prompt.schema import JsonObject, is_object


@attrs.frozen(kw_only=True)
class PromptByRole:
    """What a model is sent; ``system`` does not depend on bound values.

    ``user`` is the text with the names of images and files, ``content`` has these themselves.
    """

    system: str
    user: str
    content: Content


def by_role(rendered: RenderedPrompt[object], *, say_format: bool) -> PromptByRole:
    """Split a prompt by the roles of its sections.

    Those without a role are the system's up to the first one that shows a bound value or follows
    a section of the user; if there is none, all of them are the user's. With ``say_format`` the
    expected form of the answer is stated in the text, for models that accept no schema.
    """
    # The system text is the same for all examples, so that the provider can cache it.
    first = next((n for n, section in enumerate(rendered.sections) if _is_users(section)), 0)
    sections: dict[str, list[RenderedSection]] = {"system": [], "user": []}
    for at, section in enumerate(rendered.sections):
        sections[section.role or ("system" if at < first else "user")].append(section)
    system = attrs.evolve(rendered, sections=tuple(sections["system"])).text
    user_part = attrs.evolve(rendered, sections=tuple(sections["user"]))
    user, content = user_part.text, user_part.content
    schema = rendered.output_schema if say_format else None
    if schema is None:
        return PromptByRole(system=system, user=user, content=content)
    format_text = _format_text(schema)
    if system:
        return PromptByRole(system=f"{system}\n\n{format_text}", user=user, content=content)
    return PromptByRole(
        system="", user=f"{user}\n\n{format_text}", content=(*content, f"\n\n{format_text}")
    )


def _is_users(section: RenderedSection) -> bool:
    if section.role is not None:
        return section.role == "user"
    return any(segment.placeholder is not None for segment in section.segments)


def _format_text(schema: JsonObject) -> str:
    options = schema.get("enum")
    if isinstance(options, list):
        description = schema.get("description")
        named = ", ".join(str(option) for option in options)
        text = f"Answer with exactly one of these and nothing else: {named}."
        return f"## Answer\n\n{text}" + (f"\n\n{description}" if description else "")
    what = "object" if is_object(schema) or "$ref" in schema else "value"
    return (
        f"## Answer\n\nAnswer with one JSON {what} that fits this JSON Schema and nothing else:\n\n"
        f"```json\n{json.dumps(schema, ensure_ascii=False)}\n```"
    )

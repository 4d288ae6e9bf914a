"""What of a rendered prompt is said by the system, and what by the user."""

from __future__ import annotations

import attrs

from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection
from promptgraft.prompt.schema import JsonObject
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Content:
    """The two texts that a model is sent.

    Attributes:
        system: what is the same for all values that are bound; empty when nothing is.
        user: everything else, in reading order.
    """

    system: str
    user: str


def content_of(rendered: RenderedPrompt[object], *, say_format: bool) -> Content:
    """Split a prompt before the first section that shows a value.

    A prompt whose first section shows one, or that shows none, is all the user's.

    Args:
        rendered: the prompt.
        say_format: whether to say which answers are wanted, for models that cannot be told in
            another way.
    """
    first = next((n for n, section in enumerate(rendered.sections) if _is_bound(section)), 0)
    system = attrs.evolve(rendered, sections=rendered.sections[:first]).text
    user = attrs.evolve(rendered, sections=rendered.sections[first:]).text
    schema = rendered.output_schema if say_format else None
    if schema is None:
        return Content(system=system, user=user)
    wanted = _wanted(schema)
    if system:
        return Content(system=f"{system}\n\n{wanted}", user=user)
    return Content(system="", user=f"{user}\n\n{wanted}")


def _is_bound(section: RenderedSection) -> bool:
    return any(segment.placeholder is not None for segment in section.segments)


def _wanted(schema: JsonObject) -> str:
    options = schema.get("enum")
    if isinstance(options, list):
        said = schema.get("description")
        named = ", ".join(str(option) for option in options)
        text = f"Answer with exactly one of these and nothing else: {named}."
        return f"## Answer\n\n{text}" + (f"\n\n{said}" if said else "")
    return (
        "## Answer\n\nAnswer with one JSON object that fits this JSON Schema and nothing else:\n\n"
        f"```json\n{_json(schema)}\n```"
    )


def _json(value: Json) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)

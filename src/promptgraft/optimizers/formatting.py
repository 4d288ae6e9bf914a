"""How rollouts are shown to a reflector, and kept within limits."""

from __future__ import annotations

import json

from promptgraft.adapters.base import PromptResponse
from promptgraft.errors import DataFormatError
from promptgraft.optimizers.types import GepaExample
from promptgraft.serde import unstructure


def clip(text: str, limit: int) -> str:
    """Return ``text``, or its head and tail with a note on what is left out.

    The result is never longer than ``limit`` characters; the note is dropped where the limit
    has no room for it.
    """
    if len(text) <= limit:
        return text
    note = f"\n[… {len(text) - limit} of {len(text)} characters left out …]\n"
    room = limit - len(note) - 2
    if room < 2:
        return text[:limit]
    # Leaving out makes room for the note as well, so count again with what really goes.
    note = f"\n[… {len(text) - room} of {len(text)} characters left out …]\n"
    head = (room + 1) // 2
    return text[:head] + note + text[len(text) - (room - head) :]


def default_example_formatter(
    example: GepaExample, response: PromptResponse[object] | None
) -> tuple[str, str]:
    """Show parameters as JSON, and the answer as its text."""
    params = example.params[0] if len(example.params) == 1 else example.params
    if response is None:
        return show_value(params), "<no response>"
    if response.output is not None and not response.text:
        return show_value(params), show_value(response.output)
    return show_value(params), response.text or "<empty>"


def show_value(value: object) -> str:
    """Return a value as indented JSON, or as its ``repr`` where JSON has no form for it."""
    try:
        return json.dumps(unstructure(value), indent=2, ensure_ascii=False)
    except DataFormatError:
        return repr(value)

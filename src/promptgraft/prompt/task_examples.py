"""Worked examples of a whole task: what was asked, which tools were called, what came out."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.parts.validation import check_key
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.tools import ToolExample


@attrs.frozen(kw_only=True)
class TaskStep:
    """One tool call of a worked example.

    Attributes:
        tool_name: the tool.
        example: why it is called, with what, and what it returns.
    """

    tool_name: str
    example: ToolExample[object, object]


def _as_steps(steps: Iterable[TaskStep]) -> tuple[TaskStep, ...]:
    return tuple(steps)


@attrs.frozen(kw_only=True)
class TaskExample:
    """A worked example.

    Attributes:
        key: identifier of the example in its section.
        objective: what was asked.
        steps: the tool calls, in order.
        outcome: the answer: a text, or an instance of the prompt's output type.
        overridable: whether stores may replace or remove it.

    Raises:
        InvalidIdentifierError: ``key`` is no identifier.
    """

    key: str
    objective: str
    steps: tuple[TaskStep, ...] = attrs.field(default=(), converter=_as_steps)
    outcome: object
    overridable: bool = True

    def __attrs_post_init__(self) -> None:
        check_key(self.key, "task example key")


def _as_task_examples(examples: Iterable[TaskExample]) -> tuple[TaskExample, ...]:
    return tuple(examples)


@attrs.frozen(kw_only=True)
class TaskExamplesSection(MarkdownSection):
    """A section that holds worked examples; several may stand in one prompt.

    Attributes:
        examples: the examples, in the order in which they are shown.

    Raises:
        PromptDefinitionError: two examples, or an example and a child, share a key.
    """

    examples: tuple[TaskExample, ...] = attrs.field(default=(), converter=_as_task_examples)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        seen = {child.key for child in self.children}
        for example in self.examples:
            if example.key in seen:
                raise PromptDefinitionError(
                    f"section `{self.key}`: two parts have the key `{example.key}`"
                )
            seen.add(example.key)

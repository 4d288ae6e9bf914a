"""Tools that a model may call, with typed examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.prompt.fields import fields_of
from promptgraft.prompt.schema import check_carried
from promptgraft.serde import field_names, shown, unstructure
from promptgraft.strict import structure

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")

# What both large providers accept as a function's name.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@attrs.frozen(kw_only=True)
class ToolExample(Generic[ParamsT, ResultT]):
    """One call of a tool, shown to the model.

    Attributes:
        description: when or why one would make this call.
        input: the parameters.
        output: what the tool returns for them.
    """

    description: str
    input: ParamsT
    output: ResultT


def _as_examples(
    examples: Iterable[ToolExample[Any, Any]],
) -> tuple[ToolExample[Any, Any], ...]:
    return tuple(examples)


@attrs.frozen(kw_only=True)
class Tool(Generic[ParamsT, ResultT]):
    """A function that a model may call.

    Attributes:
        name: letters, digits, `_` and `-`, up to 64.
        description: what it does and when to use it.
        params_type: attrs class or dataclass of its parameters; ``Described`` annotations
            say what each one means.
        result_type: type of what it returns: ``str``, None, an attrs class, a dataclass, ...
        handler: the function; None for a tool that is only described.
        examples: calls that are shown to the model.
        overridable: whether stores may replace description and examples.

    Raises:
        PromptDefinitionError: the name is none, ``params_type`` is no class of fields, JSON cannot
            carry one of the types, or an example does not fit them.
    """

    name: str
    description: str
    params_type: type[ParamsT]
    result_type: type[ResultT]
    handler: Callable[[ParamsT], ResultT] | None = None
    examples: tuple[ToolExample[ParamsT, ResultT], ...] = attrs.field(
        default=(), converter=_as_examples
    )
    overridable: bool = True

    def __attrs_post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise PromptDefinitionError(
                f"tool name: expected 1 to 64 letters, digits, `_` or `-`, found {shown(self.name)}"
            )
        if field_names(self.params_type) is None:
            raise PromptDefinitionError(
                f"tool `{self.name}`: params_type: expected an attrs class or dataclass, "
                f"found {shown(self.params_type)}"
            )
        check_carried(self.params_type, f"tool `{self.name}`: params_type")
        check_carried(self.result_type, f"tool `{self.name}`: result_type")
        for index, example in enumerate(self.examples):
            where = f"tool `{self.name}`: example {index}"
            check_value(example.input, self.params_type, where=f"{where}: input")
            check_value(example.output, self.result_type, where=f"{where}: output")

    @property
    def param_descriptions(self) -> dict[str, str]:
        """What is said of each parameter, by name."""
        return {field.name: field.described.description for field in fields_of(self.params_type)}


def check_value(value: object, kind: Any, *, where: str) -> None:
    """Refuse a value that is not of its type, or that JSON cannot carry there and back."""
    try:
        plain = unstructure(value)
    except DataFormatError as error:
        raise PromptDefinitionError(f"{where}: {error}") from None
    try:
        restored = structure(plain, kind, where=where)
    except DataFormatError as error:
        raise PromptDefinitionError(str(error)) from None
    if restored != value:
        raise PromptDefinitionError(
            f"{where}: {shown(value)} does not survive JSON; it comes back as {shown(restored)}"
        )

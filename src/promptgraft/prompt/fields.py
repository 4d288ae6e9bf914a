"""Fields of users' classes: names, types and descriptions."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import signature_of
from promptgraft.ground.serde import field_names, is_pydantic, shown
from promptgraft.overrides.parts.descriptors import fold_name

BOOL_WORDS = {"true": True, "yes": True, "false": False, "no": False}
"""The words for truth values."""


def _as_texts(texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise PromptDefinitionError(f"aliases: expected a list of texts, found {shown(texts)}")
    return tuple(texts)


@attrs.frozen
class Described:
    """The description of a field for models, as an annotation of its type.

    ``severity: Annotated[Severity, Described("How bad it is.", aliases=("level",))]``

    Attributes:
        description: the meaning of the field.
        aliases: other names of the field. The model is shown the first one instead of the
            field's own name; answers may use any of them.
        values: the meaning of each option of a choice.

    Raises:
        PromptDefinitionError: ``aliases`` is one text.
    """

    description: str = ""
    aliases: tuple[str, ...] = attrs.field(default=(), converter=_as_texts, kw_only=True)
    values: Mapping[str, str] = attrs.field(
        factory=dict, converter=FrozenMap[str, str], kw_only=True
    )


@attrs.frozen(kw_only=True)
class FieldInfo:
    """One field of an attrs class or dataclass."""

    owner: str
    name: str
    kind: Any = attrs.field(hash=False)
    described: Described
    required: bool

    @property
    def key(self) -> str:
        """The field as overrides name it: ``Review.severity``."""
        return f"{self.owner}.{self.name}"


def fields_of(kind: Any) -> tuple[FieldInfo, ...]:
    """Return the fields of an attrs class or dataclass, in order; none for other types.

    Raises:
        PromptDefinitionError: an annotation of the class cannot be resolved, an alias is taken,
            or a described option does not exist.
    """
    return _fields_of(kind) if isinstance(kind, type) else ()


@functools.cache
def _fields_of(kind: Any) -> tuple[FieldInfo, ...]:
    names = field_names(kind)
    if names is None:
        return ()
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        # The error names only the missing type; the field is the one whose annotation holds it.
        signature = signature_of(kind)
        declared = signature.parameters.values() if signature else ()
        wrong = [each.name for each in declared if str(error.name) in str(each.annotation)]
        raise PromptDefinitionError(
            f"field `{'.'.join((kind.__name__, *wrong[:1]))}`: {error}; define the annotated types "
            "at module level"
        ) from None
    required = _required(kind)
    fields = tuple(
        FieldInfo(
            owner=kind.__name__,
            name=name,
            kind=without_annotation(hints[name]),
            described=_described(hints[name]) or _of_pydantic(kind, name),
            required=name in required,
        )
        for name in names
    )
    for field in fields:
        _check_described(field, fields)
    return fields


def _check_described(field: FieldInfo, fields: tuple[FieldInfo, ...]) -> None:
    names_taken = {
        fold_name(name)
        for sibling in fields
        if sibling.name != field.name
        for name in (sibling.name, *sibling.described.aliases)
    }
    own_names = {field.name}
    for alias in field.described.aliases:
        # Its own are compared exactly: an alias may be the field's name in another spelling.
        if not alias.strip() or alias in own_names or fold_name(alias) in names_taken:
            raise PromptDefinitionError(
                f"field `{field.key}`: the alias {shown(alias)} is empty or taken; use another"
            )
        own_names.add(alias)
    options = options_within(field.kind)
    for option in field.described.values:
        if option not in options:
            raise PromptDefinitionError(
                f"field `{field.key}`: values: there is no option {shown(option)}; options: "
                + (", ".join(options) or "none")
            )


def classes_in(kind: Any) -> tuple[type, ...]:
    """Return the attrs classes and dataclasses in a type, outermost first.

    Raises:
        PromptDefinitionError: two of them share a name, so overrides could not address them, or
            one is generic, so its fields have no definite types.
    """
    classes: dict[str, type] = {}
    _collect(kind, classes)
    return tuple(classes.values())


def _collect(kind: Any, classes: dict[str, type]) -> None:
    if not isinstance(kind, type) or field_names(kind) is None:
        origin = get_origin(kind)
        if isinstance(origin, type) and field_names(origin) is not None:
            raise PromptDefinitionError(
                f"{shown(kind)} is a generic class; expected one without type parameters"
            )
        for argument in get_args(kind):
            _collect(argument, classes)
        return
    class_before = classes.get(kind.__name__)
    # Also where a class holds itself.
    if class_before is kind:
        return
    if class_before is not None:
        raise PromptDefinitionError(
            f"two classes are named `{kind.__name__}` ({shown(class_before)} and {shown(kind)}); "
            "rename one"
        )
    classes[kind.__name__] = kind
    for field in fields_of(kind):
        _collect(field.kind, classes)


def options_of(kind: Any) -> tuple[str, ...]:
    """Return the options of a choice: an ``Enum`` or ``Literal`` of strings; none for others."""
    if isinstance(kind, type):
        values = tuple(member.value for member in kind) if issubclass(kind, Enum) else ()
    else:
        values = get_args(kind) if get_origin(kind) is Literal else ()
    return values if all(isinstance(value, str) for value in values) else ()


def options_within(kind: Any) -> tuple[str, ...]:
    """Return the options of a choice, also inside an optional type or a list."""
    own_options = options_of(kind)
    if own_options:
        return own_options
    return next(
        (inner_options for arg in get_args(kind) if (inner_options := options_within(arg))), ()
    )


def options_at(kind: Any, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the options of the choice at the path ``keys`` in a type; empty if it is not one.

    The path leads through optional types and lists.
    """
    for key in keys:
        kind = {field.name: field.kind for field in fields_of(inner_of(kind))}.get(key)
    return options_of(inner_of(kind))


def inner_of(kind: Any) -> Any:
    """Return a type without annotation, and what an optional type or a list of it holds."""
    kind = without_annotation(kind)
    arguments = [argument for argument in get_args(kind) if argument not in (type(None), ...)]
    return inner_of(arguments[0]) if len(arguments) == 1 and not options_of(kind) else kind


def members_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def without_annotation(hint: Any) -> Any:
    """Return a type without what ``Annotated`` adds to it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _described(hint: Any) -> Described | None:
    if get_origin(hint) is Annotated:
        for note in get_args(hint)[1:]:
            if isinstance(note, Described):
                return note
    return None


def _of_pydantic(kind: Any, name: str) -> Described:
    """Return the description that a model of pydantic has for a field, by ``Field``."""
    return Described(kind.model_fields[name].description or "" if is_pydantic(kind) else "")


def _required(kind: Any) -> frozenset[str]:
    if is_pydantic(kind):
        return frozenset(n for n, field in kind.model_fields.items() if field.is_required())
    if attrs.has(kind):
        return frozenset(a.name for a in attrs.fields(kind) if a.default is attrs.NOTHING)
    return frozenset(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


_FACTORY: type = type(attrs.Factory(str))  # which attrs types as a function


def with_made_defaults(kind: Any) -> tuple[str, ...]:
    """Return the fields whose default a function makes, of an attrs class or dataclass."""
    if attrs.has(kind):
        fields = attrs.fields(kind)
        return tuple(field.name for field in fields if isinstance(field.default, _FACTORY))
    if dataclasses.is_dataclass(kind):
        members = dataclasses.fields(kind)
        return tuple(m.name for m in members if m.default_factory is not dataclasses.MISSING)
    return ()

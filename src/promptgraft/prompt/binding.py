"""The parameters bound to a prompt, looked up by the names of its placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.errors import BindingError
from promptgraft.parts.body import spell
from promptgraft.parts.descriptors import SectionPath
from promptgraft.prompt.sections import MarkdownSection, show_section
from promptgraft.prompt.syntax import Values
from promptgraft.serde import field_names, shown


class Bindings:
    """The bound parameters, looked up by field name.

    Raises:
        BindingError: a parameter is neither an attrs or dataclass instance nor a mapping.
    """

    def __init__(self, params: Sequence[object]) -> None:
        self._by_type: dict[type, Values] = {type(param): values_of(param) for param in params}
        self._ambiguous: set[str] = set()
        self._all: dict[str, object] = {}
        for values in self._by_type.values():
            self._ambiguous.update(self._all.keys() & values.keys())
            self._all.update(values)

    @property
    def all(self) -> Values:
        """Every value by field name."""
        return self._all

    def visible_to(self, section: MarkdownSection, path: SectionPath) -> Values:
        """Return the values that the placeholders of ``section`` are looked up in.

        Raises:
            BindingError: a value is missing or two parameters offer it.
        """
        if section.params_type is not None:
            return self._of_type(section.params_type, path)
        for name in section.source.variables:
            if name not in self._all:
                raise self._missing(section, path, name)
        for name in section.source.reads:
            if name in self._ambiguous:
                raise BindingError(
                    f"{show_section(path)}: two bound parameters have a field `{name}`; "
                    "give the section a params_type"
                )
        return self._all

    def _of_type(self, kind: type, path: SectionPath) -> Values:
        if kind in self._by_type:
            return self._by_type[kind]
        bound = ", ".join(found.__name__ for found in self._by_type) or "nothing"
        raise BindingError(f"{show_section(path)} needs a bound `{kind.__name__}`; bound: {bound}")

    def _missing(self, section: MarkdownSection, path: SectionPath, name: str) -> BindingError:
        bound = ", ".join(f"`{known}`" for known in self._all) or "nothing"
        return BindingError(
            f"{show_section(path)} needs a value for `{spell(name, section.source.syntax)}`; "
            f"bound values: {bound}; bind a parameter with that field"
        )


def values_of(param: object) -> Values:
    """Return the fields of a parameter by name.

    Raises:
        BindingError: it is neither an attrs or dataclass instance nor a mapping of names.
    """
    if isinstance(param, Mapping) and all(isinstance(key, str) for key in param):
        return param
    names = field_names(type(param))
    if names is None or isinstance(param, type):
        raise BindingError(
            "bind: expected attrs or dataclass instances, or mappings with string keys; "
            f"found {shown(param)}"
        )
    return {name: getattr(param, name) for name in names}

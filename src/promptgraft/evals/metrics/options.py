"""The options of a metric, read from plain data with every fault at its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.serde import Json, did_you_mean, shown, structure

T = TypeVar("T")

Options = Mapping[str, Json]


@attrs.frozen
class Place:
    """A place in a file, and the faults that were found in the file so far.

    Attributes:
        where: the file.
        path: the place, such as ``$.metrics[0].threshold``.
        lines: the lines of the places of the file, if they are known.
        faults: one line each; shared by all places of the file.
    """

    where: str
    path: str = "$"
    lines: Mapping[str, int] = attrs.field(factory=dict, eq=False, repr=False)
    faults: list[str] = attrs.field(factory=list, eq=False)

    def at(self, step: str | int) -> Place:
        """Return a place below this one."""
        spelled = f"[{step}]" if isinstance(step, int) else f".{step}"
        return attrs.evolve(self, path=self.path + spelled)

    def fault(self, text: str) -> None:
        """Note that something is wrong here."""
        line = self._line
        where = f"{self.where}:{line}" if line else self.where
        self.faults.append(f"{where}: {text} @ {self.path}")

    @property
    def _line(self) -> int:
        """The line of the place, or of the nearest one around it; 0 when it is not known."""
        path = self.path
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 0)


def read_options(kind: type[T], options: Options, place: Place) -> T | None:
    """Return an instance of an attrs class; None when faults were noted.

    Every field is read and validated by itself, so that one look shows all that is wrong.
    """
    before = len(place.faults)
    fields = {field.name: field for field in _fields(kind)}
    values = {}
    for name, value in options.items():
        if name not in fields:
            place.at(name).fault(f"unknown option `{name}`{did_you_mean(name, list(fields))}")
        else:
            values[name] = _read(fields[name], value, place.at(name))
    for name, field in fields.items():
        if field.default is attrs.NOTHING and name not in options:
            place.fault(f"required option `{name}` missing")
    if len(place.faults) > before:
        return None
    try:
        return kind(**values)
    except ConfigError as error:
        place.fault(str(error))
        return None


def _fields(kind: type) -> tuple[attrs.Attribute[object], ...]:
    if not attrs.has(kind):
        raise ConfigError(f"expected an attrs class, found {shown(kind)}")
    fields: tuple[attrs.Attribute[object], ...] = attrs.fields(attrs.resolve_types(kind))
    return fields


def _read(field: attrs.Attribute[object], value: Json, place: Place) -> object:
    """Return one value in the type of its field, and hold it against the field's validator."""
    if field.metadata.get("plain"):
        read: object = value
    elif field.type is not None and attrs.has(field.type):
        if not isinstance(value, dict):
            place.fault(f"expected an object, found {shown(value)}")
            return None
        return read_options(field.type, value, place)
    else:
        read = _structured(field, value, place)
        if read is None:
            return None
    if field.validator is not None and read is not None:
        try:
            field.validator(None, field, read)
        except ConfigError as error:
            place.fault(str(error).removeprefix(f"{field.name}: "))
    return read


def _structured(field: attrs.Attribute[object], value: Json, place: Place) -> object:
    kind: type = field.type or object
    try:
        return structure(value, kind, where=place.where)
    except DataFormatError as error:
        for fault in error.faults:
            text = fault.removeprefix(f"{place.where}: ")
            said, _, path = text.rpartition(" @ $")
            attrs.evolve(place, path=place.path + path).fault(said)
    return None

"""Checks of single values: each is a reader, a JSON Schema and a validator for attrs.

A reader reports every fault at its place and returns None if there is one, so that one run shows
all faults of a file.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Generic, Self, TypeAlias, TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.strict.nodes import Node, found

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Schema: TypeAlias = "dict[str, Json]"

LARGEST_AMOUNT = 1_000_000_000
"""Largest budget of test calls, and largest amount of US dollars."""

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN = "something else (not shown)"


class Reach(StrEnum):
    """What a setting reaches outside of the settings, and so only trusted files may name."""

    CODE = "Python code"
    FILE = "a file or a folder"
    VARIABLE = "an environment variable"
    ADDRESS = "an address"
    COMMAND = "a command"


@attrs.frozen
class Kind(Generic[T_co]):
    """A kind of value.

    Attributes:
        reader: returns the value of a node, or reports faults and returns None.
        schema: the same as a JSON Schema.
        reach: what a value of this kind reaches outside of the settings; None for plain values.
    """

    reader: Callable[[Node], T_co | None]
    schema: Schema = attrs.field(factory=dict, repr=False, hash=False)
    reach: Reach | None = attrs.field(default=None, kw_only=True)

    def read(self, node: Node) -> T_co | None:
        """Return the value of a node, or report faults and return None.

        What reaches outside is refused in a source that is not trusted, without looking at it.
        """
        if self.reach is not None and not node.source.is_trusted:
            node.fault(f"names {self.reach}, which only the project file may; set it there")
            return None
        return self._value(node)

    def _value(self, node: Node) -> T_co | None:
        return self.reader(node)

    def reaching(self, reach: Reach) -> Self:
        """Return the same kind, marked as one that reaches outside."""
        return attrs.evolve(self, reach=reach)


@attrs.frozen
class Check(Kind[T_co]):
    """A kind of value with one condition; also a validator for attrs.

    Attributes:
        what: the expected value, for messages.
        fits: returns a valid value in the form to keep, and None for all others.
        names: valid values that are suggested for a misspelled one.
        hidden: whether messages must not show the value.
        mend: how to fix an invalid value.
        nullable: whether None is valid too.
    """

    what: str = ""
    fits: Callable[[object], T_co | None] = lambda _: None
    names: tuple[str, ...] = ()
    hidden: bool = False
    mend: str = ""
    nullable: bool = False

    # Not by the `reader`, because a check that was evolved must read with its own message.
    def _value(self, node: Node) -> T_co | None:
        value = self.fits(node.value)
        if value is None:
            node.fault(self.fault(found(node.value), node.value))
        return value

    def __call__(self, owner: object, field: attrs.Attribute[Any], value: object) -> None:
        """Validate the value of a field for attrs; the error names it by :func:`path_of`."""
        self.hold(path_of(owner, field), value)

    def hold(self, name: str, value: object) -> None:
        """Raise a ``ConfigError`` naming ``name`` if the value is not valid."""
        if value is None and self.nullable:
            return
        if self.fits(value) is None:
            raise ConfigError(f"{name}: {self.fault(shown(value), value)}")

    def fault(self, described: str, value: object) -> str:
        """Return the message for an invalid value; ``described`` is the value as shown."""
        near = did_you_mean(value, list(self.names)) if isinstance(value, str) else ""
        mend = f"; {self.mend}" if self.mend else ""
        return f"expected {self.what}, found {_HIDDEN if self.hidden else described}{near}{mend}"

    @property
    def or_none(self) -> Check[T_co]:
        """The same check, with None valid too."""
        return attrs.evolve(self, nullable=True)

    def or_word(self, word: str) -> Check[T_co | str]:
        """The same check, with one word valid too."""
        return check(
            f"{self.what}, or `{word}`",
            lambda value: word if value == word else self.fits(value),
            {"anyOf": [self.schema, {"const": word}]},
            names=(word,),
        )


def path_of(owner: object, field: attrs.Attribute[Any]) -> str:
    """Return the name of a field in messages: ``limits.timeout`` for a group of settings.

    Fields of other classes are named ``Class: field``, or just ``field`` without an owner.
    """
    if owner is None:
        return field.name
    kind = type(owner)
    before: str = getattr(kind, "settings_path", f"{kind.__name__}: ")
    return f"{before}{field.name}"


def check(
    what: str,
    fits: Callable[[object], T | None],
    schema: Schema | None = None,
    *,
    names: Iterable[str] = (),
    hidden: bool = False,
    mend: str = "",
) -> Check[T]:
    """Return a check; see :class:`Check`."""
    # The reader is a placeholder: a check reads by itself.
    return Check(lambda _: None, schema or {}, what, fits, tuple(names), hidden, mend)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):  # `bool` is an `int`
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer that no float can hold
        return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() and "\0" not in value else None


def integer(least: int | None = None, most: int | None = None) -> Check[int]:
    """Return a check for integers from ``least`` to ``most``, of at most 64 bits."""

    def fits(value: object) -> int | None:
        number = _integer(value)
        if number is None or (least is not None and number < least) or number.bit_length() > 63:
            return None
        return None if most is not None and number > most else number

    bounds = {"minimum": least, "maximum": most}
    return check(f"an integer{_range(bounds)}", fits, _bounded("integer", bounds))


def number(
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    what: str = "a number",
) -> Check[float]:
    """Return a check for finite numbers in a range; ``above`` and ``below`` are exclusive."""

    def fits(value: object) -> float | None:
        number_given = _number(value)
        if number_given is None or (least is not None and number_given < least):
            return None
        if (most is not None and number_given > most) or (
            above is not None and number_given <= above
        ):
            return None
        return None if below is not None and number_given >= below else number_given

    bounds = {
        "minimum": least,
        "maximum": most,
        "exclusiveMinimum": above,
        "exclusiveMaximum": below,
    }
    return check(f"{what}{_range(bounds)}", fits, _bounded("number", bounds))


def _range(bounds: Mapping[str, float | None]) -> str:
    least, most = bounds.get("minimum"), bounds.get("maximum")
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}"
    limits = [
        f"{word} {bound:,}"
        for word, name in (
            ("of at least", "minimum"),
            ("above", "exclusiveMinimum"),
            ("of at most", "maximum"),
            ("below", "exclusiveMaximum"),
        )
        if (bound := bounds.get(name)) is not None
    ]
    return f" {' and '.join(limits)}" if limits else ""


def _bounded(kind: str, bounds: Mapping[str, float | None]) -> Schema:
    return {"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}}


def money(least: int | None = None, *, texts: bool = False) -> Check[Decimal]:
    """Return a check for US dollars above 0, or at least ``least``; ``texts`` allows texts.

    They are bounded, since no float or database holds what a decimal number can.
    """
    types = (int, float, Decimal, *((str,) if texts else ()))

    def fits(value: object) -> Decimal | None:
        if isinstance(value, bool) or not isinstance(value, types):
            return None
        try:
            amount = Decimal(str(value))  # the shortest digits of a float, not its binary value
        except InvalidOperation:
            return None
        if not amount.is_finite() or amount > LARGEST_AMOUNT:
            return None
        if amount <= 0 if least is None else amount < least:
            return None
        return amount

    bounds = {
        "exclusiveMinimum": 0 if least is None else None,
        "minimum": least,
        "maximum": LARGEST_AMOUNT,
    }
    return check(f"US dollars{_range(bounds)}, such as 2.50", fits, _bounded("number", bounds))


def one_of(*names: str) -> Check[str]:
    """Return a check for texts that are one of ``names``."""
    return check(
        f"one of {', '.join(f'`{name}`' for name in names)}",
        lambda value: value if isinstance(value, str) and value in names else None,
        {"enum": list(names)},
        names=names,
    )


def instance(kind: type[T], what: str = "", schema: Schema | None = None) -> Check[T]:
    """Return a check for instances of a class."""
    what = what or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    return check(what, lambda value: value if isinstance(value, kind) else None, schema)


def _moment(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    # A time without a zone could not be compared with others.
    return time if time is not None and time.tzinfo else None


STRING: Check[str] = instance(str, "a text", {"type": "string"})
TEXT: Check[str] = check("a text", _text, {"type": "string", "minLength": 1})
PATH: Check[str] = TEXT.reaching(Reach.FILE)
"""The path of a file or a folder."""
ENVIRONMENT_NAME: Check[str] = check(
    "the name of an environment variable such as HOME",
    lambda value: value if isinstance(value, str) and _NAME.fullmatch(value) else None,
    {"type": "string", "pattern": f"^{_NAME.pattern}$"},
)
FLAG: Check[bool] = instance(bool, "true or false", {"type": "boolean"})
INTEGER: Check[int] = integer()
ANY_INTEGER: Check[int] = check("an integer", _integer, {"type": "integer"})
COUNT: Check[int] = integer(1)
NUMBER: Check[float] = number()
FINITE: Check[float] = number(what="a finite number")
SHARE: Check[float] = number(0, 1)
SECONDS: Check[float] = number(above=0, what="seconds")
DOLLARS: Check[Decimal] = money()
MOMENT: Check[datetime] = check("an ISO 8601 time with its offset", _moment, {"type": "string"})
OBJECT: Check[dict[str, Json]] = instance(dict, "an object", {"type": "object"})
ANYTHING: Kind[Json] = Kind(lambda node: node.value)


def plain_number(value: object) -> Any:
    """Convert a ``bool``, ``Decimal`` or numpy number to a float; return other values unchanged."""
    item = getattr(value, "item", None)  # numpy numbers are not Python numbers
    if callable(item) and not isinstance(value, numbers.Real):
        with contextlib.suppress(ValueError):  # an array
            value = item()
    if isinstance(value, (numbers.Real, Decimal)):
        with contextlib.suppress(ValueError, OverflowError):  # too large, or a signalling NaN
            return float(value)
    return value


ROUNDING = 1e-9
"""By how much rounding may move a score."""


def reaches(score: float, least: float) -> bool:
    """Return whether a score is at least so high, as far as rounding can tell.

    Of floats, the mean of three times 0.7 is below 0.7.
    """
    return score >= least or math.isclose(score, least, rel_tol=ROUNDING)


def plain_score(value: object) -> Any:
    """Convert a score as :func:`plain_number` does, and undo rounding errors beside 0 and 1.

    Sums of shares such as ``0.1 + 0.2 + 0.7`` miss 1 by the last digit on either side.
    """
    number = plain_number(value)
    if isinstance(number, float):
        return next((edge for edge in (0.0, 1.0) if abs(number - edge) <= ROUNDING), number)
    return number

"""A Jinja2 sandbox that bounds the work of a template; imported with the first template.

Jinja's own sandbox stops neither ``9**9**9`` nor ``'%1000000000d' % 1``, which are computed while a
template is compiled, nor deeply nested loops.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from enum import Enum
from typing import TypeVar

from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import (
    ImmutableSandboxedEnvironment,
    SandboxedEscapeFormatter,
    SandboxedFormatter,
)

from promptgraft.prompt.values import text_of

T = TypeVar("T")

MOST = 5_000_000
"""The bound for one rendering: steps, characters and items, all together."""

_LARGEST_BITS = 14_284  # 4,300 digits; Python writes no longer integers

UNCOMPILED = (ValueError, RecursionError, MemoryError, SyntaxError)
"""Errors of compiling a source, besides Jinja's ``TemplateSyntaxError``."""

_STEPS_OF_CALL = 20  # a call, or a filter, takes about as long as this many steps of a loop

# Names of internal filters, which no template can spell.
_PART, _STEPS, _WALKED = "part of ~", "steps of for", "operand of =="

_made = ContextVar[list[int] | None]("promptgraft_made", default=None)


@contextlib.contextmanager
def bounded() -> Iterator[list[int]]:
    """Bound all rendering inside the context to ``MOST``; beyond it, raise ``OverflowError``.

    The list holds the work so far, that of inner contexts included, which have bounds of their own.
    """
    outer, counter = _made.get(), [0]
    token = _made.set(counter)
    try:
        yield counter
    finally:
        _made.reset(token)
        if outer is not None:
            outer[0] += counter[0]


def charge(amount: int) -> None:
    """Count work that is about to be done.

    Raises:
        OverflowError: the bound is exceeded.
    """
    # Outside of `bounded` nothing adds up: only one huge operation is refused.
    counter = _made.get() or [0]
    counter[0] += amount
    if counter[0] > MOST:
        raise OverflowError(f"it makes more than {MOST:,} characters, items and steps")


def why_uncompiled(error: BaseException) -> str:
    """Return the fault of a source that raised one of ``UNCOMPILED``."""
    is_long = isinstance(error, ValueError)
    return "an integer has too many digits" if is_long else "it is nested too deeply"


# Of Mustache, Handlebars and Semantic Kernel, whose tags begin as those of Jinja do.
_FOREIGN = re.compile(
    r"\{\{(?P<mark>~?(?:[#^/>!&$@{~]|\.\.?/))\s*(?P<word>\w*)[ \t]*(?P<rest>[^{}\n]*)\}\}\}?"
)
_IN_JINJA = {
    "#if": "{% if REST %}",
    "#unless": "{% if not REST %}",
    "#each": "{% for item in REST %}",
    "#": "{% if WORD %}` or `{% for item in WORD %}",
    "^": "{% if not WORD %}",
    "/if": "{% endif %}",
    "/unless": "{% endif %}",
    "/each": "{% endfor %}",
    "/": "{% endif %}` or `{% endfor %}",
    "!": "{# WORD REST #}",
    "@index": "{{ loop.index0 }}",
    "@": "{{ loop.WORD }}",
}


def foreign_tag(template: str, line: int) -> str:
    """Return what to write instead of a tag of another language in a line; empty for none."""
    tag = _FOREIGN.search(template.split("\n")[line - 1])
    if tag is None:
        return ""
    mark, word, rest = tag["mark"].lstrip("~"), tag["word"], tag["rest"].strip(" ~-")
    if mark == ">":
        mend = "the text that it includes in its place"
    else:
        form = _IN_JINJA.get(mark + word) or _IN_JINJA.get(mark, "{{ WORD }}")
        mend = form.replace("REST", rest).replace("WORD", word)
        mend = f"`{' '.join(mend.split())}`"
    language = "Semantic Kernel" if mark == "$" else "Mustache or Handlebars"
    return f"`{tag[0]}` is of {language}, and the prompt is declared as Jinja; write {mend}"


class _Measured(SandboxedFormatter):
    def format_field(self, value: object, format_spec: str) -> str:
        charge(_size(value) + sum(map(int, re.findall(r"\d+", format_spec))))
        text: str = super().format_field(value, format_spec)
        return text


class _MeasuredMarkup(_Measured, SandboxedEscapeFormatter):
    pass


class Sandbox(ImmutableSandboxedEnvironment):
    """A deterministic environment that changes no value and does at most ``MOST`` work.

    Args:
        keys_first: whether ``this.items`` is a key of an object rather than its method.
    """

    intercepted_binops = frozenset({"**", "*", "+", "%"})

    def __init__(self, *, keys_first: bool = False) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True, finalize=_written)
        self._keys_first = keys_first
        # Both are random, and a prompt must always render the same text.
        del self.globals["lipsum"], self.filters["random"]
        self.filters |= {"string": _stringed, "join": _joining(self.filters["join"])}
        self.filters |= {
            name: _bounded(name, function)
            for name, function in self.filters.items()
            if name not in _CONSTANT
        }
        # A filter of nunjucks, which many templates are written for: data as JSON.
        self.filters["dump"] = _bounded("dump", _dumped)
        self.filters |= {_PART: _written, _STEPS: pass_context(_steps), _WALKED: _walked}

    def getattr(self, obj: object, attribute: str) -> object:
        if self._keys_first and isinstance(obj, Mapping):
            return self.getitem(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        if self._keys_first and isinstance(obj, Mapping):
            if argument in obj:
                return obj[argument]
            return self.undefined(obj=obj, name=str(argument))
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        charge(1 + _of_operator(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: object, /, *args: object, **named: object) -> object:
        charge(_STEPS_OF_CALL)
        owner, name = (getattr(obj, key, None) for key in ("__self__", "__name__"))
        charge(_length(owner))  # most methods walk through all of it
        if isinstance(owner, (str, bytes, int)):
            args = tuple(map(_listed, args))
            charge(_of_call(name, owner, *args, **named))
        return super().call(context, obj, *args, **named)

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text: str = getattr(value, "__self__", "")
        escape = getattr(text, "escape", None)
        formatter = _MeasuredMarkup(self, escape=escape) if escape else _Measured(self)
        if getattr(value, "__name__", "") == "format_map":
            return lambda values: type(text)(formatter.vformat(text, (), values))
        return lambda *args, **named: type(text)(formatter.vformat(text, args, named))

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        # Listed, because the search walks the tree that is changed here.
        for loop in list(source.find_all(nodes.For)):
            text = sum(len(data.data) for data in loop.find_all(nodes.TemplateData))
            loop.iter = _filtered(loop.iter, _STEPS, nodes.Const(1 + text))
        for compared in list(source.find_all(nodes.Compare)):
            compared.expr = _filtered(compared.expr, _WALKED)
            for operand in compared.ops:
                operand.expr = _filtered(operand.expr, _WALKED)
        for item in list(source.find_all(nodes.Getitem)):
            if isinstance(item.arg, nodes.Slice):
                item.node = _filtered(item.node, _WALKED)
        for joined in list(source.find_all(nodes.Concat)):
            joined.nodes = [_filtered(part, _PART) for part in joined.nodes]
        for number in source.find_all(nodes.Const):
            if number.value == math.inf:  # Jinja would generate the undefined name `inf`
                raise TemplateSyntaxError("a number is too large", number.lineno)
        # The new nodes have none yet.
        source.set_environment(self)
        return super()._generate(source, name, filename, defer_init)


@functools.cache
def sandbox(*, keys_first: bool = False) -> Sandbox:
    """Return the one sandbox of this process."""
    return Sandbox(keys_first=keys_first)


def _filtered(value: nodes.Node, name: str, *given: nodes.Node) -> nodes.Filter:
    return nodes.Filter(value, name, list(given), [], None, None, lineno=value.lineno)


def _written(value: object) -> object:
    charge(_size(value))
    return _stringed(value)


def _stringed(value: object) -> object:
    # Markup and undefined names stay what they are.
    is_text = isinstance(value, (str, Undefined)) and not isinstance(value, Enum)
    return value if is_text else text_of(value)


def _joining(join: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(join)
    def joined(
        context: object, values: Iterable[object], d: str = "", attribute: object = None
    ) -> str:
        items = map(_stringed, values) if attribute is None else values
        return join(context, items, d, attribute)

    return joined


def _walked(value: T) -> T:
    charge(_length(value))
    return value


_CHARACTERS_OF_STEP = 50
_COUNTED = (list, tuple, Mapping, set, frozenset, range)


def _length(value: object) -> int:
    """Return about how many steps it takes to walk through a value, without doing so."""
    if isinstance(value, (str, bytes)):
        return len(value) // _CHARACTERS_OF_STEP
    return len(value) if isinstance(value, _COUNTED) else 0


def _dumped(value: object, indent: int | None = None) -> str:
    # `tojson` would write `<` as `\u003c`, for pages of HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _steps(_: object, values: Iterable[T], cost: int) -> Iterator[T]:
    for value in values:
        charge(cost)
        yield value


def _bounded(name: str, function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def called(*args: object, **named: object) -> object:
        first = int(hasattr(function, "jinja_pass_arg"))  # after the argument that Jinja passes
        values_counted = tuple(map(_listed, args[first:])) if name in _GROWING else args[first:]
        charge(_STEPS_OF_CALL)
        charge(sum(map(_length, values_counted)) + _of_call(name, *values_counted, **named))
        return function(*args[:first], *values_counted, **named)

    return called


def _listed(value: object) -> object:
    # Measuring an iterator would use it up.
    return list(value) if isinstance(value, Iterator) else value


def _of_operator(operator: str, left: object, right: object) -> int:
    if operator == "%":
        return _of_percent(left, right) if isinstance(left, (str, bytes)) else 0
    if isinstance(left, int) and isinstance(right, int):
        # The power has at least this many bits.
        bits = (left.bit_length() - 1) * right if operator == "**" else 0
        if operator == "*":
            bits = left.bit_length() + right.bit_length()
        if bits > _LARGEST_BITS:
            raise OverflowError(f"`{operator}` makes an integer of too many digits")
        return 0
    if operator == "+":
        return sum(len(operand) for operand in (left, right) if isinstance(operand, _ROWS))
    for operand, times in ((left, right), (right, left)):
        if operator == "*" and isinstance(operand, _ROWS) and isinstance(times, int):
            return len(operand) * times
    return 0


_ROWS = (str, bytes, list, tuple)
_SPEC = re.compile(r"%(?:\([^%]{0,99}?\))??[-#0 +]*(\d+)?(?:\.(\d+))?[*.\d]*[a-zA-Z]")
_PADDING = {"batch", "center", "ljust", "rjust", "slice", "to_bytes", "zfill"}
_SPREADING = {"dump", "expandtabs", "indent", "tojson"}
_CONSTANT = {"attr", "count", "d", "default", "first", "last", "length"}
"""Filters that do not walk through their argument."""
_GROWING = {*_PADDING, *_SPREADING, "format", "join", "replace", "round", "translate"}
"""Filters and methods whose result may be much larger than their arguments."""


def _of_call(name: object, value: object, *args: object, **named: object) -> int:
    values = (*args, *named.values())
    if name == "format":
        return _of_percent(value, named or args)
    if name not in _GROWING:
        return 0
    size = _size(value)
    most = max((value if isinstance(value, int) else _size(value) for value in values), default=0)
    if name == "round":
        return most * 1_000  # digits of a power of ten
    if name in _PADDING:
        return size + most
    if name == "replace" and isinstance(value, str):
        old, new = (*map(str, values), "", "")[:2]
        return size + value.count(old) * len(new)
    if name in _SPREADING and isinstance(value, str):
        return size + (value.count("\n") + value.count("\t") + 1) * most
    return size * max(most, 1)


def _of_percent(text: object, values: object) -> int:
    plain = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    widths = sum(int(width or 0) for spec in _SPEC.finditer(plain) for width in spec.groups())
    starred = values if "*" in plain and isinstance(values, tuple) else ()
    widths += sum(abs(size) for size in starred if isinstance(size, int))
    # A named value may be written once for every `%(name)`.
    return len(plain) + widths + _size(values) * max(1, plain.count("%("))


def _size(value: object) -> int:
    """Estimate the characters in the text of a value; counting stops beyond ``MOST``."""
    total, waiting = 0, [value]
    while waiting and total <= MOST:
        item = waiting.pop()
        total += 1
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, Mapping):
            waiting += (*item.keys(), *item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting += item
    return total

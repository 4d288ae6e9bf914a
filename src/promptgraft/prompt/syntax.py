"""Section templates, split once into text and slots.

A source template and an override body render through the same pieces: text stays as it is,
a slot is replaced by its value. The slots of a dollar template are its placeholders. The slots
of a Jinja template are its variables and, under names of their own, its expressions and
control blocks, which are opaque: an override body moves them but cannot change them.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import attrs

from promptgraft.errors import BindingError, PromptDefinitionError, PromptRenderError
from promptgraft.overrides.body import BodySyntax, Piece, Slot, parse_body, write_body

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

Values = Mapping[str, object]
"""The bound parameters by field name."""

SlotRenderer = Callable[[Values], str]

_OPENING = {
    "for": "endfor",
    "if": "endif",
    "call": "endcall",
    "filter": "endfilter",
    "with": "endwith",
    "autoescape": "endautoescape",
    "macro": "endmacro",
}
_DEFINING = {"set", "macro"}


@attrs.frozen(kw_only=True)
class Source:
    """A compiled section template.

    Attributes:
        syntax: how it was written.
        pieces: text and slots in order; adjacent text is merged.
        placeholders: names of the slots in order of first appearance.
        opaque: for each slot that is more than a variable, its Jinja source.
    """

    syntax: BodySyntax
    pieces: tuple[Piece, ...]
    placeholders: tuple[str, ...]
    opaque: Mapping[str, str]
    _renderers: Mapping[str, SlotRenderer] = attrs.field(repr=False, eq=False)

    @property
    def body(self) -> str:
        """The template in the language of override bodies."""
        return write_body(self.pieces, self.syntax, frozenset(self.placeholders))

    def parse(self, body: str) -> tuple[Piece, ...]:
        """Split an override body into text and the slots of this template."""
        return parse_body(body, self.syntax, frozenset(self.placeholders))

    def fill(self, name: str, values: Values) -> str:
        """Return the text of a slot.

        Raises:
            KeyError: a variable is not among ``values``.
            PromptRenderError: an opaque slot does not render with ``values``.
        """
        renderer = self._renderers.get(name)
        return str(values[name]) if renderer is None else renderer(values)


def compile_source(template: str, syntax: BodySyntax, *, where: str) -> Source:
    """Split a template into text and slots.

    Raises:
        PromptDefinitionError: the template does not parse, or uses what sections do not offer.
    """
    if syntax is BodySyntax.DOLLAR:
        return _compile_dollar(template, where)
    return _compile_jinja(template, where)


def _ordered(pieces: tuple[Piece, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(piece.name for piece in pieces if isinstance(piece, Slot)))


def _compile_dollar(template: str, where: str) -> Source:
    pieces: list[Piece] = []
    start = 0
    for match in string.Template.pattern.finditer(template):
        pieces.append(template[start : match.start()])
        start = match.end()
        if name := match.group("named") or match.group("braced"):
            pieces.append(Slot(name))
        elif match.group("escaped") is not None:
            pieces.append("$")
        else:
            line = template.count("\n", 0, match.start()) + 1
            raise PromptDefinitionError(
                f"{where}:{line}: a lone `$`; write `$$` for a dollar sign or "
                "`$name` for a placeholder"
            )
    pieces.append(template[start:])
    return _source(BodySyntax.DOLLAR, pieces, {}, {})


def _source(
    syntax: BodySyntax,
    pieces: list[Piece],
    opaque: Mapping[str, str],
    renderers: Mapping[str, SlotRenderer],
) -> Source:
    # Writing and parsing merges adjacent text into the one form that bodies have.
    names = frozenset(piece.name for piece in pieces if isinstance(piece, Slot))
    merged = parse_body(write_body(pieces, syntax, names), syntax, names)
    return Source(
        syntax=syntax,
        pieces=merged,
        placeholders=_ordered(merged),
        opaque=opaque,
        renderers=renderers,
    )


@attrs.frozen
class _Segment:
    kind: str
    text: str


def _compile_jinja(template: str, where: str) -> Source:
    environment = _environment()
    _check_jinja(environment, template, where)
    segments = tuple(_segments(environment, template, where))
    prelude = "".join(segment.text for segment in segments if segment.kind in _DEFINING)
    pieces: list[Piece] = []
    opaque: dict[str, str] = {}
    renderers: dict[str, SlotRenderer] = {}
    taken = {segment.text for segment in segments if segment.kind == "variable"}
    for segment in segments:
        if segment.kind == "text":
            pieces.append(segment.text)
        elif segment.kind == "variable":
            pieces.append(Slot(segment.text))
            if prelude:
                snippet = f"{prelude}{{{{ {segment.text} }}}}"
                renderers[segment.text] = _JinjaSlot(where=where, snippet=snippet)
        elif segment.kind not in _DEFINING:
            name = _fresh_name(segment.kind, taken)
            pieces.append(Slot(name))
            opaque[name] = segment.text
            renderers[name] = _JinjaSlot(where=where, snippet=prelude + segment.text)
    return _source(BodySyntax.JINJA, pieces, opaque, renderers)


def _fresh_name(kind: str, taken: set[str]) -> str:
    number = 1
    while f"{kind}_{number}" in taken:
        number += 1
    taken.add(f"{kind}_{number}")
    return f"{kind}_{number}"


def _segments(environment: SandboxedEnvironment, template: str, where: str) -> Iterator[_Segment]:
    """Yield the outermost text, variables, expressions and blocks of a Jinja template."""
    tokens = list(environment.lex(template))
    position = 0
    while position < len(tokens):
        line, kind, text = tokens[position]
        if kind == "variable_begin":
            end = _end_of(tokens, position, "variable_end")
            yield _expression(tokens[position:end])
        elif kind == "block_begin":
            end = _block_end(tokens, position, f"{where}:{line}")
            yield _Segment(
                _keyword(tokens, position), "".join(token[2] for token in tokens[position:end])
            )
        else:
            end = position + 1
            if kind == "data":
                yield _Segment("text", text)
        position = end


_Token = tuple[int, str, str]


def _end_of(tokens: list[_Token], start: int, kind: str) -> int:
    return next(i for i in range(start, len(tokens)) if tokens[i][1] == kind) + 1


def _expression(tokens: list[_Token]) -> _Segment:
    inner = [token for token in tokens[1:-1] if token[1] != "whitespace"]
    if len(inner) == 1 and inner[0][1] == "name":
        return _Segment("variable", inner[0][2])
    return _Segment("expr", "".join(token[2] for token in tokens))


def _keyword(tokens: list[_Token], start: int) -> str:
    return next(token[2] for token in tokens[start + 1 :] if token[1] == "name")


def _block_end(tokens: list[_Token], start: int, where: str) -> int:
    """Return the position after the block that opens at ``start``, its body included."""
    keyword = _keyword(tokens, start)
    closing = _closing(tokens, start)
    if closing is None and keyword != "set":
        raise PromptDefinitionError(
            f"{where}: sections do not offer `{{% {keyword} %}}`; use for, if, set, macro, call, "
            "filter or with"
        )
    position = _end_of(tokens, start, "block_end")
    depth = 1 if closing else 0
    while depth:
        opening = _end_of(tokens, position, "block_begin") - 1
        if _keyword(tokens, opening) == closing:
            depth -= 1
        elif _closing(tokens, opening) == closing:
            depth += 1
        position = _end_of(tokens, opening, "block_end")
    return position


def _closing(tokens: list[_Token], start: int) -> str | None:
    """Return the keyword that ends the block opening at ``start``; None without a body."""
    keyword = _keyword(tokens, start)
    if keyword != "set":
        return _OPENING.get(keyword)
    head = tokens[start : _end_of(tokens, start, "block_end")]
    return None if any(token[1:] == ("operator", "=") for token in head) else "endset"


@functools.lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
    )


def _check_jinja(environment: SandboxedEnvironment, template: str, where: str) -> None:
    from jinja2 import TemplateSyntaxError

    try:
        environment.from_string(template)
    except TemplateSyntaxError as error:
        raise PromptDefinitionError(f"{where}:{error.lineno}: {error.message}") from None


@attrs.define
class _JinjaSlot:
    """Renders one opaque slot; compiled at first use, and picklable."""

    where: str
    snippet: str

    def __call__(self, values: Values) -> str:
        from jinja2 import TemplateError

        try:
            return _template(self.snippet).render(values)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        from jinja2 import UndefinedError

        message = f"{self.where}: `{self.snippet}` does not render: {error}"
        if isinstance(error, UndefinedError):
            raise BindingError(message) from None
        raise PromptRenderError(message) from None


@functools.lru_cache(maxsize=512)
def _template(snippet: str) -> Template:
    return _environment().from_string(snippet)

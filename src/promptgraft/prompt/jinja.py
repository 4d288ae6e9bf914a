"""Jinja templates of sections: splitting them into text, variables and opaque blocks; rendering.

Jinja2 is loaded when the first template is split.
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import attrs

from promptgraft.errors import BindingError, PromptDefinitionError, PromptRenderError
from promptgraft.ground.text import clip_line
from promptgraft.overrides.parts.body import BodySyntax, Piece, Slot, spell
from promptgraft.prompt.jinja_layout import RAW, JinjaLayout, JinjaSegment, stretches_of

if TYPE_CHECKING:
    from jinja2 import Template, nodes
    from jinja2.sandbox import SandboxedEnvironment

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
_SILENT = {*RAW, "comment_begin", "comment", "comment_end"}
"""What leaves nothing where it stands."""
_NEWLINE = re.compile(r"\r\n|\r")
# Separates the slots in the text of one rendering; random, so that no value can contain it.
_CUT = f"\0{secrets.token_hex(16)}\0"


def split_jinja(template: str, where: str) -> tuple[list[Piece], tuple[str, ...], JinjaBlocks]:
    """Split a Jinja template into text and slots.

    Returns:
        Text and slots in order, every name that is looked up among the values, and the blocks.

    Raises:
        PromptDefinitionError: it does not parse, or uses unsupported tags.
    """
    from jinja2 import meta

    from promptgraft.prompt.sandbox import sandbox

    environment = sandbox()
    tree = _parse_jinja(environment, template, where)
    reads = meta.find_undeclared_variables(tree)
    # Placeholders in override bodies are ASCII; names that the template sets are not looked up.
    variables = {name for name in reads if name.isascii()}.difference(_assigned(tree.body))
    # Like Jinja; else the texts of its tokens would not be found in the source.
    source = _NEWLINE.sub("\n", template)
    segments = [
        attrs.evolve(segment, kind="expr", text=f"{{{{ {segment.text} }}}}")
        if segment.kind == "variable" and segment.text not in variables
        else segment
        for segment in _segments(environment, source, where)
    ]
    variable_names = {segment.text for segment in segments if segment.kind == "variable"}
    pieces: list[Piece] = []
    blocks: list[tuple[str | None, str]] = []
    for segment in segments:
        if segment.kind == "text":
            pieces.append(segment.text)
        elif segment.kind == "variable":
            pieces.append(Slot(segment.text))
        else:
            name = None
            if segment.kind not in {*_DEFINING, *_SILENT}:
                name = _fresh_name(segment.kind, variable_names)
            if segment.kind not in _SILENT:
                blocks.append((name, segment.text))
            pieces.append(Slot(name) if name else "")
    layout = JinjaLayout(
        source=source,
        stretches=tuple(stretches_of(source, zip(segments, pieces, strict=True))),
        opaque={name: text for name, text in blocks if name is not None},
    )
    rendered = JinjaBlocks(where=where, blocks=tuple(blocks), layout=layout)
    return pieces, tuple(sorted(reads)), rendered


def _assigned(statements: Iterable[nodes.Node]) -> Iterator[str]:
    """Yield the names that the template itself assigns, outside of inner scopes."""
    from jinja2 import nodes

    for statement in statements:
        if isinstance(statement, (nodes.Assign, nodes.AssignBlock)):
            # `find_all` does not yield the target itself, only nodes below it.
            targets = (statement.target, *statement.target.find_all(nodes.Name))
            yield from (target.name for target in targets if isinstance(target, nodes.Name))
        elif isinstance(statement, nodes.Macro):
            yield statement.name
        elif isinstance(statement, nodes.If):
            yield from _assigned((*statement.body, *statement.elif_, *statement.else_))


def _fresh_name(kind: str, used_names: set[str]) -> str:
    number = 1
    while f"{kind}_{number}" in used_names:
        number += 1
    used_names.add(f"{kind}_{number}")
    return f"{kind}_{number}"


class _Token(NamedTuple):
    line: int
    kind: str
    text: str
    start: int


def _tokens(environment: SandboxedEnvironment, source: str) -> list[_Token]:
    tokens: list[_Token] = []
    start = 0
    for line, kind, text in environment.lex(source):
        # Found by search, because a `-` in a tag has stripped the whitespace before it.
        start = source.index(text, start)
        tokens.append(_Token(line, kind, text, start))
        start += len(text)
    return tokens


def _segments(environment: SandboxedEnvironment, source: str, where: str) -> Iterator[JinjaSegment]:
    """Yield everything at the top level of a Jinja template."""
    tokens = _tokens(environment, source)
    position = 0
    while position < len(tokens):
        first = tokens[position]
        kind, name = first.kind, ""
        if first.kind == "variable_begin":
            end = _end_of(tokens, position, "variable_end")
            inner = [
                token for token in tokens[position + 1 : end - 1] if token.kind != "whitespace"
            ]
            kind = "expr"
            if [token.kind for token in inner] == ["name"]:
                kind, name = "variable", inner[0].text
        elif first.kind == "block_begin":
            end = _block_end(tokens, position, f"{where}:{first.line}")
            kind = _keyword(tokens, position)
        else:
            end = position + 1
            kind = "text" if first.kind == "data" else first.kind
        stop = tokens[end - 1].start + len(tokens[end - 1].text)
        yield JinjaSegment(kind, name or source[first.start : stop], first.start, stop)
        position = end


def _end_of(tokens: list[_Token], start: int, kind: str) -> int:
    return next(i for i in range(start, len(tokens)) if tokens[i].kind == kind) + 1


def _keyword(tokens: list[_Token], start: int) -> str:
    return next(token.text for token in tokens[start + 1 :] if token.kind == "name")


def _block_end(tokens: list[_Token], start: int, where: str) -> int:
    """Return the position after the block that opens at ``start``, including its body."""
    keyword = _keyword(tokens, start)
    closing = _closing(tokens, start)
    if closing is None and keyword != "set":
        raise _not_offered(keyword, where)
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
    """Return the keyword that closes the block at ``start``; None if it has no body."""
    keyword = _keyword(tokens, start)
    if keyword != "set":
        return _OPENING.get(keyword)
    head = tokens[start : _end_of(tokens, start, "block_end")]
    # `{% set x = ... %}` has no body; `{% set x | filter(y=1) %}` has one: which comes first?
    operators = [
        token.text for token in head if token.kind == "operator" and token.text in {"=", "|"}
    ]
    return None if operators[:1] == ["="] else "endset"


def _parse_jinja(environment: SandboxedEnvironment, template: str, where: str) -> nodes.Template:
    from jinja2 import TemplateSyntaxError, nodes

    from promptgraft.prompt import sandbox

    try:
        # Compiled too, because the parser alone accepts unknown filters.
        environment.from_string(template)
        tree = environment.parse(template)
    except TemplateSyntaxError as error:
        why = sandbox.foreign_tag(template, error.lineno) or error.message
        raise PromptDefinitionError(f"{where}:{error.lineno}: {why}") from None
    except sandbox.UNCOMPILED as error:
        raise PromptDefinitionError(f"{where}: {sandbox.why_uncompiled(error)}") from None
    keywords: dict[type[nodes.Node], str] = {
        nodes.Block: "block",
        nodes.Extends: "extends",
        nodes.FromImport: "from",
        nodes.Import: "import",
        nodes.Include: "include",
    }
    for node in tree.find_all(tuple(keywords)):
        raise _not_offered(keywords[type(node)], f"{where}:{node.lineno}")
    return tree


def _not_offered(keyword: str, where: str) -> PromptDefinitionError:
    return PromptDefinitionError(
        f"{where}: sections do not offer `{{% {keyword} %}}`; use for, if, set, macro, call, "
        "filter or with"
    )


@attrs.frozen(kw_only=True)
class JinjaBlocks:
    """Renders all opaque slots of a template in order; compiled on first use, picklable.

    Attributes:
        where: the name of the template in messages.
        blocks: name and Jinja source of each slot; definitions have no name.
        layout: how the author wrote the template.
    """

    where: str
    blocks: tuple[tuple[str | None, str], ...]
    layout: JinjaLayout

    @property
    def definitions(self) -> str:
        """The source of what the template defines for its slots."""
        return "\n".join(text for name, text in self.blocks if name is None)

    def spelled_out(self, message: str) -> str:
        """Return a message with the beginning of each opaque block in place of its marker."""
        for name, text in self.layout.opaque.items():
            message = message.replace(spell(name, BodySyntax.JINJA), f"`{clip_line(text, 80)}`")
        return message

    def texts(self, values: Mapping[str, object]) -> Mapping[str, str]:
        """Return the text of each slot by name."""
        if not self.blocks:
            return {}
        from jinja2 import TemplateError

        from promptgraft.prompt import sandbox

        chunks: list[str] = []
        try:
            # One template, because `set` and `macro` apply to the blocks that follow.
            template = _template(_CUT.join(text for _, text in self.blocks))
            with sandbox.bounded():
                for chunk in template.generate(values):
                    sandbox.charge(len(chunk))
                    chunks.append(chunk)
        except (
            TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            # The number of cuts is that of the blocks that have been rendered.
            self._fail("".join(chunks).count(_CUT), error)
        texts = "".join(chunks).split(_CUT)
        named = zip(self.blocks, texts, strict=True)
        return {name: text for (name, _), text in named if name is not None}

    def _fail(self, block: int, error: Exception) -> NoReturn:
        from jinja2 import UndefinedError

        message = f"{self.where}: `{self.blocks[block][1]}` does not render: {error}"
        if isinstance(error, UndefinedError):
            raise BindingError(message) from None
        raise PromptRenderError(message) from None


@functools.lru_cache(maxsize=512)
def _template(source: str) -> Template:
    from promptgraft.prompt.sandbox import sandbox

    return sandbox().from_string(source)

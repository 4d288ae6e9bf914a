"""Section templates, split once into text and slots.

A source template and an override body render through the same pieces: text is literal, a slot is
replaced by its value. The slots of a Jinja template are its variables and, under generated names,
its expressions and control blocks. These are opaque: an override body can move but not change them,
and they keep the value that they have at their place in the template. A plain template has no
slots; those of the others are their placeholders.
"""

from __future__ import annotations

import functools
import operator
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.ground.content import Content, cut_at, files_in
from promptgraft.ground.serde import shown
from promptgraft.overrides.parts.body import (
    BodySyntax,
    Piece,
    Slot,
    is_placeholder,
    kept_names,
    marker_names,
    parse_body,
    spell,
    write_body,
)
from promptgraft.prompt.values import content_of

if TYPE_CHECKING:
    from promptgraft.prompt.jinja import JinjaBlocks

Values = Mapping[str, object]
"""The bound parameters by field name."""


def given(name: str) -> Callable[[Values], bool]:
    """Return an ``enabled`` function: the value ``name``, which is true unless it is empty."""
    # A nested function could not be pickled.
    return operator.itemgetter(name)


_SPEC = r"(?:![rsa])?(?::[^{}\s\"']+)?"
"""A conversion and a format, as in ``{name!r}`` or ``{price:.2f}``."""
_LOOKALIKES = {
    BodySyntax.DOLLAR: re.compile(rf"\{{\{{? ?([^\W\d]\w*){_SPEC} ?\}}\}}?"),
    BodySyntax.JINJA: re.compile(rf"(?:\$\{{?|\{{)([^\W\d]\w*)(?:{_SPEC}\}})?"),
    BodySyntax.FORMAT: re.compile(r"(?:\$|\{ )([^\W\d]\w*)(?: \})?"),
}
"""Placeholders as users of other syntaxes would write them."""
_CUT_NAME = re.compile(r"(?<!\$)\$([_a-zA-Z][_a-zA-Z0-9]*)((?![_a-zA-Z0-9])\w+)")
_FORM = ", of letters a to z, digits and `_`,"
_BRACES = re.compile(r"\{\{|\}\}|\{([_a-zA-Z][_a-zA-Z0-9]*)\}|[{}]")
_FORMATTED = re.compile(rf"\{{([_a-zA-Z][_a-zA-Z0-9]*){_SPEC}\}}")
_OF_SEMANTIC_KERNEL = re.compile(r"\{\{ *\$([_a-zA-Z]\w*) *\}\}")


SHELL_NAMES = frozenset(
    (
        *("EDITOR", "HOME", "HOSTNAME", "IFS", "LANG", "LC_ALL", "LOGNAME", "OLDPWD", "PAGER"),
        *("PATH", "PWD", "SHELL", "TERM", "TMPDIR", "UID", "USER"),
    )
)
"""Variables of shells. In a dollar template they are literal where no value has their name."""


@attrs.frozen(kw_only=True)
class SectionSource:
    """A compiled section template.

    Attributes:
        pieces: text and slots in order; adjacent text is merged.
        placeholders: names of the slots in order of first appearance; for a plain template, the
            strings that its author named.
        opaque: the Jinja source of each slot that is more than a variable.
        reads: all names that are looked up among the values, also inside opaque slots.
        written: variables of shells as a dollar template spells them, by name.
        jinja: the blocks and the layout of a Jinja template; None in other syntaxes.
    """

    syntax: BodySyntax
    pieces: tuple[Piece, ...]
    placeholders: tuple[str, ...]
    opaque: Mapping[str, str] = attrs.field(factory=dict)
    reads: tuple[str, ...]
    written: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)
    jinja: JinjaBlocks | None = attrs.field(default=None, repr=False, eq=False)

    @functools.cached_property
    def body(self) -> str:
        """The template in the language of override bodies."""
        return write_body(self.pieces, self.syntax, frozenset(self.placeholders))

    @functools.cached_property
    def variables(self) -> tuple[str, ...]:
        """The placeholders that are replaced by bound values."""
        if self.syntax is BodySyntax.PLAIN:
            return ()
        return tuple(name for name in self.placeholders if name not in self.opaque)

    def parse(self, body: str) -> tuple[Piece, ...]:
        """Split an override body into text and the slots of this template."""
        return parse_body(body, self.syntax, frozenset(self.placeholders))

    def as_template(self, body: str) -> str:
        """Return an override body as the author of the template would write it.

        Opaque slots have their source, braces of a format are doubled; dollar signs stay single.
        """
        if self.syntax is BodySyntax.FORMAT:
            return doubled(self.parse(body))
        return body if self.jinja is None else self.jinja.layout.written(self.parse(body))

    def lookalikes(self, template: str) -> Iterator[tuple[str, str, BodySyntax | None]]:
        """Yield each name that is written like a placeholder but is none, a hint, and its syntax.

        The syntax is that in which it would be one, if there is such a syntax.
        """
        if self.syntax is BodySyntax.PLAIN:
            return
        for text in (piece for piece in self.pieces if isinstance(piece, str)):
            for match in _LOOKALIKES[self.syntax].finditer(text):
                is_name = match[1].isascii()
                right = spell(match[1] if is_name else "name", self.syntax)
                form = "" if is_name else _FORM.rstrip(",")
                hint = f"has `{match[0]}`, which is plain text; write `{right}`{form}"
                yield match[1], hint, _syntax_of(match[0], match[1])
        for match in _CUT_NAME.finditer(template) if self.syntax is BodySyntax.DOLLAR else ():
            start, rest = match.groups()
            # In scripts without case, words touch each other.
            if rest.lower() != rest.upper():
                cut = f"has `{match[0]}`, of which only `${start}` is a placeholder"
                yield start + rest, f"{cut}; write `$name`{_FORM} or `${{{start}}}{rest}`", None

    def contents(self, values: Values) -> Mapping[str, str | Content]:
        """Return what each slot shows: a text, or texts, images and files.

        Raises:
            KeyError: a variable is not among ``values``.
            BindingError: an opaque slot needs a missing value.
            PromptRenderError: an opaque slot does not render with ``values``.
        """
        contents = {
            name: value if type(value := values[name]) is str else content_of(value)
            for name in self.variables
            if name in values or name not in self.written
        }
        for name, literal in self.written.items():
            contents.setdefault(name, literal)
        if self.jinja is None:
            return contents
        files = tuple(files_in(values))
        for name, text in self.jinja.texts(values).items():
            contents[name] = cut_at(text, files) if files else text
        return contents


def _syntax_of(marker: str, name: str) -> BodySyntax | None:
    """Return the syntax that spells a placeholder so; None if there is none."""
    return next((kind for kind in _LOOKALIKES if marker_names(marker, kind) == {name}), None)


def doubled(pieces: Sequence[Piece]) -> str:
    """Return text and slots as a template of ``str.format``."""
    return "".join(
        f"{{{piece.name}}}"
        if isinstance(piece, Slot)
        else piece.replace("{", "{{").replace("}", "}}")
        for piece in pieces
    )


def spelled_as_text(name: str, syntax: BodySyntax) -> str:
    """Return how a template writes the characters of a placeholder; empty for a long way."""
    forms = {BodySyntax.DOLLAR: f"$${name}", BodySyntax.FORMAT: f"{{{{{name}}}}}"}
    return forms.get(syntax, "")


def compile_source(
    template: str, syntax: BodySyntax, *, where: str, placeholders: Sequence[str] = ()
) -> SectionSource:
    """Split a template into text and slots.

    Args:
        template: the text of the author.
        syntax: its syntax.
        where: its name in messages.
        placeholders: the literal placeholders of a plain template.

    Raises:
        PromptDefinitionError: the template does not parse, uses unsupported tags, or lacks a
            placeholder; or a placeholder is not printable.
    """
    if syntax is BodySyntax.PLAIN:
        return _compile_plain(template, placeholders, where)
    if placeholders:
        raise PromptDefinitionError(
            f"{where}: placeholders: expected none beside the syntax '{syntax}', whose templates "
            "spell their own; leave them out, or set the syntax to 'plain'"
        )
    if syntax is BodySyntax.DOLLAR:
        return _compile_dollar(template, where)
    if syntax is BodySyntax.FORMAT:
        return _compile_format(template, where)
    return _compile_jinja(template, where)


def _compile_plain(template: str, placeholders: Sequence[str], where: str) -> SectionSource:
    for name in placeholders:
        if not is_placeholder(name):
            raise PromptDefinitionError(
                f"{where}: placeholders: expected printable characters such as '{{query}}', "
                f"found {shown(name)}"
            )
    names_kept = kept_names(template, BodySyntax.PLAIN, frozenset(placeholders))
    for name in placeholders:
        if name not in names_kept:
            raise PromptDefinitionError(
                f"{where}: the text does not hold the placeholder `{name}`; write it into the "
                "text, or leave it out of `placeholders`"
            )
    return SectionSource(
        syntax=BodySyntax.PLAIN,
        pieces=parse_body(template, BodySyntax.PLAIN, names_kept),
        placeholders=tuple(dict.fromkeys(placeholders)),
        reads=(),
    )


def _ordered(pieces: tuple[Piece, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(piece.name for piece in pieces if isinstance(piece, Slot)))


def _compile_dollar(template: str, where: str) -> SectionSource:
    if match := _OF_SEMANTIC_KERNEL.search(template):
        line = template.count("\n", 0, match.start()) + 1
        raise PromptDefinitionError(
            f"{where}:{line}: `{match[0]}` would be sent with its braces; write `${match[1]}`, or "
            f"`{{{{${{{match[1]}}}}}}}` for braces around the value"
        )
    pieces: list[Piece] = []
    written: dict[str, str] = {}
    start = 0
    # The pattern of the standard library, so that both read every template alike.
    for match in string.Template.pattern.finditer(template):
        pieces.append(template[start : match.start()])
        start = match.end()
        if name := match.group("named") or match.group("braced"):
            pieces.append(Slot(name))
            if name in SHELL_NAMES and (match["braced"] or name not in written):
                # With braces if they are needed anywhere: `${HOME}s` is not `$HOMEs`.
                written[name] = match[0]
        elif match.group("escaped") is not None:
            pieces.append("$")
        else:
            line = template.count("\n", 0, match.start()) + 1
            after = template[match.end() : match.end() + 1]
            form = _FORM if after.isalpha() else ""
            raise PromptDefinitionError(
                f"{where}:{line}: a lone `$`; write `$$` for a dollar sign or "
                f"`$name`{form} for a placeholder"
            )
    pieces.append(template[start:])
    merged = _merged(pieces, BodySyntax.DOLLAR)
    names = _ordered(merged)
    return SectionSource(
        syntax=BodySyntax.DOLLAR, pieces=merged, placeholders=names, reads=names, written=written
    )


def _compile_format(template: str, where: str) -> SectionSource:
    pieces: list[Piece] = []
    start = 0
    for match in _BRACES.finditer(template):
        pieces.append(template[start : match.start()])
        start = match.end()
        if len(match[0]) == 1:
            line = template.count("\n", 0, match.start()) + 1
            if formatted := _FORMATTED.match(template, match.start()):
                raise PromptDefinitionError(
                    f"{where}:{line}: `{formatted[0]}` formats its value, and values are texts as "
                    f"they are; write `{{{formatted[1]}}}`"
                )
            raise PromptDefinitionError(
                f"{where}:{line}: a lone `{match[0]}`; write `{2 * match[0]}` for a brace or "
                f"`{{name}}`{_FORM} for a placeholder"
            )
        pieces.append(Slot(match[1]) if match[1] else match[0][0])
    pieces.append(template[start:])
    merged = _merged(pieces, BodySyntax.FORMAT)
    names = _ordered(merged)
    return SectionSource(syntax=BodySyntax.FORMAT, pieces=merged, placeholders=names, reads=names)


def _compile_jinja(template: str, where: str) -> SectionSource:
    # Most prompts have no section in Jinja.
    from promptgraft.prompt.jinja import split_jinja

    pieces, reads, blocks = split_jinja(template, where)
    merged = _merged(pieces, BodySyntax.JINJA)
    return SectionSource(
        syntax=BodySyntax.JINJA,
        pieces=merged,
        placeholders=_ordered(merged),
        opaque=blocks.layout.opaque,
        reads=reads,
        jinja=blocks,
    )


def _merged(pieces: Sequence[Piece], syntax: BodySyntax) -> tuple[Piece, ...]:
    """Normalize pieces to the form of parsed bodies, by writing and parsing them."""
    names = frozenset(piece.name for piece in pieces if isinstance(piece, Slot))
    return parse_body(write_body(pieces, syntax, names), syntax, names)

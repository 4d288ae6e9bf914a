"""Display of values: as a card in a notebook, as lines of text elsewhere."""

from __future__ import annotations

import abc
import html
from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from promptgraft.ground.text import aligned, figure_columns, visible, visible_line

MOST_ROWS = 20
"""The number of rows of a table that are shown; the others are counted."""

_CELL_CHARS = 80
_CARD = "font-family:sans-serif;line-height:1.45;max-width:60em"
_TABLE = "border-collapse:collapse;margin:.4em 0"
_CELL = "text-align:left;vertical-align:top;padding:.1em .9em .1em 0"
_FIGURE = "text-align:right;vertical-align:top;padding:.1em .9em .1em 0"
_TEXT = "white-space:pre-wrap;overflow:auto;max-height:24em;margin:.3em 0 .3em 1em"


def _rows(rows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row) for row in rows)


@attrs.frozen(kw_only=True)
class Table:
    """A table with one column for each name in ``head``; ``more`` rows are not shown.

    Columns of numbers are aligned to the right.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = attrs.field(converter=_rows)
    more: int = 0


@attrs.frozen(kw_only=True)
class LongText:
    """A text of many lines, which notebooks show collapsed unless it ``is_open``."""

    title: str
    text: str
    is_open: bool = False


@attrs.frozen(kw_only=True)
class Card:
    """The display of a value: a title, its most important property, fields, tables and texts.

    Every text is shown as text, whatever markup or control characters it contains.
    """

    title: str
    lead: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    blocks: tuple[Table | LongText, ...] = ()


class Shown(abc.ABC):
    """Base of values that are displayed as cards in notebooks and by ``print``.

    The ``repr`` is left to attrs unless a class overrides it: the fingerprint of a run depends on
    the ``repr`` of some values.
    """

    # Or subclasses with slots would have a `__dict__` all the same.
    __slots__ = ()

    @abc.abstractmethod
    def _card(self) -> Card: ...

    def __str__(self) -> str:
        return as_text(self._card())

    def _repr_html_(self) -> str:
        return as_html(self._card())

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        printer.text("..." if cycle else str(self))


class Printer(Protocol):
    """The printer that IPython passes to ``_repr_pretty_``."""

    def text(self, text: str) -> None:
        """Write ``text``."""
        ...


def first_rows(rows: Iterable[Sequence[str]], head: Sequence[str]) -> Table:
    """Return a table of the first :data:`MOST_ROWS` rows and the number of others."""
    first = _rows(rows)
    return Table(head=tuple(head), rows=first[:MOST_ROWS], more=max(0, len(first) - MOST_ROWS))


def cell(text: str) -> str:
    """Return a text as a cell of a table, shortened to 80 characters."""
    return text if len(text) <= _CELL_CHARS else f"{text[: _CELL_CHARS - 1]}…"


def as_html(card: Card) -> str:
    """Render a card as HTML that needs no style sheet and no script."""
    head = f"<div><strong>{_safe(card.title)}</strong> {_safe(card.lead)}</div>"
    fields = "".join(
        f'<tr><th style="{_CELL}">{_safe(name)}</th>'
        f'<td dir="auto" style="{_CELL}">{_safe(value)}</td></tr>'
        for name, value in card.fields
    )
    rows = f'<table style="{_TABLE}"><tbody>{fields}</tbody></table>' if fields else ""
    blocks = "".join(_block(block) for block in card.blocks)
    return f'<div class="promptgraft" style="{_CARD}">{head}{rows}{blocks}</div>'


def _block(block: Table | LongText) -> str:
    if isinstance(block, LongText):
        text = html.escape(visible(block.text))
        opened = ' open="open"' if block.is_open else ""
        return (
            f"<details{opened}><summary>{_safe(block.title)}</summary>"
            f'<pre dir="auto" style="{_TEXT}">{text}</pre></details>'
        )
    styles = [_FIGURE if right else _CELL for right in figure_columns(block.rows)]
    head = "".join(
        f'<th style="{style}">{_safe(name)}</th>'
        for name, style in zip(block.head, styles, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td dir="auto" style="{style}">{_safe(cell)}</td>'
            for cell, style in zip(row, styles, strict=True)
        )
        + "</tr>"
        for row in block.rows
    )
    more = f"<div>and {block.more} more</div>" if block.more else ""
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'
    )


def _safe(text: str) -> str:
    return html.escape(visible_line(text))


def as_text(card: Card) -> str:
    """Render a card as lines of text; tables and long texts come last."""
    title = f"{card.title}: {card.lead}" if card.lead else card.title
    fields = [(visible_line(name), visible_line(value)) for name, value in card.fields]
    width = max((len(name) for name, _ in fields), default=0)
    lines = [visible_line(title), *(f"  {name:{width}}  {value}" for name, value in fields)]
    for block in card.blocks:
        lines += _text_lines(block)
    return "\n".join(lines)


def _text_lines(block: Table | LongText) -> list[str]:
    if isinstance(block, LongText):
        text = visible(block.text).replace("\n", "\n    ")
        return [f"  {visible_line(block.title)}:", f"    {text}"]
    lines = aligned([tuple(map(visible_line, row)) for row in (block.head, *block.rows)])
    return [
        *(f"  {line}".rstrip() for line in lines),
        *([f"  and {block.more} more"] if block.more else []),
    ]

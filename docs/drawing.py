"""Drawings of the pages as SVG: boxes, arrows and layers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK, PAPER, EDGE, ACCENT, SEEN = "#1f2933", "#ffffff", "#6b7785", "#1a7f4b", "#eaf6ef"
_STYLE = f"""<style>
text {{ font: 14px system-ui, sans-serif; fill: {INK} }}
.small {{ font-size: 12px; fill: {EDGE} }}
.name {{ font-weight: 600 }}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4"
markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0L8 4L0 8z" fill="{EDGE}"/></marker></defs>
"""


def gepa() -> str:
    """Return the drawing of one step of GEPA, and of the verdict that follows the search."""
    step = [
        (20, 60, ("choose a prompt", "from those kept so far")),
        (230, 60, ("answer a few", "training cases with it")),
        (440, 60, ("reflect on what went", "wrong, rewrite one text")),
        (650, 60, ("try the new text on", "the same cases")),
        (650, 190, ("better there? compare", "on validation cases")),
        (20, 190, ("still good? keep it,", "with its scores")),
    ]
    boxes = [_box(x, y, lines) for x, y, lines in step]
    arrows = [
        *(_arrow(x + 170, 90, x + 210, 90) for x in (20, 230, 440)),
        _arrow(735, 120, 735, 190),
        _arrow(650, 220, 190, 220),
        _arrow(105, 190, 105, 120),
    ]
    verdict = [
        _box(230, 320, ("your prompt against", "the winner")),
        _box(440, 320, ("on test cases that", "no step has seen")),
        _box(650, 320, ("gain and interval:", "store it, or not"), fill=SEEN),
        _arrow(105, 250, 230, 350),
        _arrow(400, 350, 440, 350),
        _arrow(610, 350, 650, 350),
    ]
    notes = [
        _text(20, 36, "The search: one step, repeated until the budget is used up", "name"),
        _text(300, 212, "falls behind: dropped at once", "small"),
        _text(230, 306, "The verdict: once, at the end", "name"),
    ]
    return _svg(840, 400, "One step of GEPA", [*notes, *boxes, *arrows, *verdict])


def layers(rows: Sequence[Sequence[str]]) -> str:
    """Return the drawing of layers, given from the top; a row imports those below it."""
    height, gap, width = 34, 8, 700
    pieces = []
    for number, names in enumerate(rows):
        y = 16 + number * (height + gap)
        fill = SEEN if number % 2 else PAPER
        pieces.append(_rectangle(20, y, width, height, fill=fill))
        room = width / len(names)
        pieces += [
            _text(20 + room * (place + 0.5), y + 22, name, "name", middle=True)
            for place, name in enumerate(names)
        ]
    bottom = 16 + len(rows) * (height + gap)
    pieces.append(_arrow(740, 20, 740, bottom - gap))
    pieces.append(_text(752, bottom / 2, "imports", "small"))
    return _svg(820, bottom + 8, "The layers of promptgraft, from the top", pieces)


def _svg(width: float, height: float, title: str, pieces: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">\n'
        f"<title>{escape(title)}</title>\n{_STYLE}"
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n'
        + "\n".join(pieces)
        + "\n</svg>\n"
    )


def _box(x: float, y: float, lines: Sequence[str], *, fill: str = PAPER) -> str:
    texts = [
        _text(x + 85, y + 25 + 18 * number, line, "", middle=True)
        for number, line in enumerate(lines)
    ]
    return _rectangle(x, y, 170, 60, fill=fill) + "".join(texts)


def _rectangle(x: float, y: float, width: float, height: float, *, fill: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
        f'fill="{fill}" stroke="{ACCENT}"/>'
    )


def _text(x: float, y: float, text: str, kind: str, *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{anchor}{style}>{escape(text)}</text>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return (
        f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="{EDGE}" stroke-width="1.5" '
        'fill="none" marker-end="url(#tip)"/>'
    )

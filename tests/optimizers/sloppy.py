"""JSON in the ways that models write it, damage to it, and the data that it is made of."""

from __future__ import annotations

import json
import random
import re

from hypothesis import Phase, settings
from hypothesis import strategies as st

PIECES = (
    '"', "'", "“", "”", "‘", "’", "{", "}", "[", "]", ":", ": ", ",", "#", " # ", "//", " // ",
    "/*", "*/", "\\", "\\n", "\\d", "\n", "\n\n", "\n  ", "```", "\n```json\n", "`", "~~~", "- ",
    '"input": {', '"output": [', '"description": "z"', '"steps": [', '"objective":', '"key": "k"',
    '"tool": "x"', '"param query": "', '"value high":', '"aliases": ["', "---", " ", "\t", "\r",
    "\xa0", "\x85", "\u2028", "\ufeff", "é", "日本", "😀", "null", "true", "NaN", "None", "1",
    "-1.5e3", "yes", "2024-01-02", "$x", "%s", "a", "word",
)  # fmt: skip
"""What might be taken for something else in a text."""

SEEDS = st.integers(0, 2**64)
"""Hypothesis chooses the seed of a batch; drawing each text by itself would cost ten times more."""

BATCH = 50


def batches(examples: int) -> settings:
    """Return settings for so many examples; a smaller seed would not be a smaller reply."""
    return settings(max_examples=-(-examples // BATCH), phases=[Phase.generate])


def a_text(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return "".join(rng.choices(PIECES, k=rng.randrange(7)))
    return "".join(_a_character(rng) for _ in range(rng.randrange(10)))


def _a_character(rng: random.Random) -> str:
    first, last = rng.choice([(32, 126), (128, 767), (0x2000, 0x206F), (0x3040, 0xD7FF)])
    return chr(rng.choice([rng.randint(first, last), rng.randint(0xE000, 0x10FFFF)]))


def a_value(rng: random.Random, depth: int = 3) -> object:
    if depth and rng.random() < 0.5:
        items = [a_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        return items if rng.random() < 0.5 else {a_text(rng): item for item in items}
    number = rng.choice([rng.randint(-9, 9), rng.getrandbits(80), rng.uniform(-1, 1) * 1e3])
    return rng.choice([None, True, False, number, rng.gauss(0, 1e-9), a_text(rng), a_text(rng)])


class Sloppy:
    """Writes values in the ways that models do, without changing what they mean."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def value(self, value: object) -> str:
        ways = [self._relaxed, self._relaxed, self._python, self._plain]
        return self._rng.choice(ways)(value)

    def reply(self, text: str) -> str:
        """Return an object that is JSON in other words, perhaps in a fence of its own."""
        value = self.value(json.loads(text))
        return self._rng.choice([value, value, f"\n{value}\n", f"`````json\n{value}\n`````"])

    def _plain(self, value: object) -> str:
        indent = self._rng.choice([None, 0, 2])
        return json.dumps(value, ensure_ascii=self._rng.random() < 0.5, indent=indent)

    def _python(self, value: object) -> str:
        text = repr(value)
        # What JSON cannot escape so is refused.
        return self._plain(value) if re.search(r"\\[xUa]", text) else text

    def _relaxed(self, value: object) -> str:
        gap = self._rng.choice(["", " ", "\n", " // it's {\n", "\n# ]\n  ", " /* “ */ "])
        match value:
            case dict() if value:
                items = [
                    f"{self._key(key)}:{gap or ' '}{self._relaxed(value[key])}" for key in value
                ]
                return f"{{{gap}{f',{gap}'.join(items)}{self._end(gap)}}}"
            case list() if value:
                return f"[{gap}{f',{gap}'.join(map(self._relaxed, value))}{self._end(gap)}]"
            case str():
                return self._text(value)
        return json.dumps(value)

    def _end(self, gap: str) -> str:
        return self._rng.choice(["", ",", f",{gap}", gap])

    def _key(self, key: str) -> str:
        is_bare = re.fullmatch("[a-zA-Z_][a-zA-Z_0-9]*", key) and self._rng.random() < 0.5
        return key if is_bare else self._text(key)

    def _text(self, text: str) -> str:
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]
        forms = [json.dumps(text), f'"{escaped}"', f'"{escaped}"'.replace("\\n", "\n")]
        if "\\\\" in escaped:
            del forms[-1]  # it may be no line end that is escaped there
        if not re.search('["“”„‟]', text):
            forms.append(f"“{escaped}”")
        if not re.search("['‘’‚‛]", text):
            forms.append(f"‘{escaped}’")
        if '"' not in text:
            forms.append("'" + escaped.replace("'", "\\'") + "'")
        return self._rng.choice(forms)


def damaged(text: str, rng: random.Random) -> str:
    """Return a text with up to three pieces of it lost, replaced or added."""
    for _ in range(rng.randint(1, 3)):
        lines = text.split("\n")
        at, line = rng.randrange(len(text) + 1), rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                del lines[line]
                text = "\n".join(lines)
            case 1:
                text = text.replace('"', rng.choice(["'", "“", "”", ""]), rng.randint(1, 9))
            case 2:
                text = text[:at]
            case 3:
                text = text[at:]
            case 4:
                lines[line] += rng.choice([" # so", " // so", ",", ";", "```", " {", '"', "\\"])
                text = "\n".join(lines)
            case 5:
                lines.insert(line, rng.choice(["# so", "// so", "```", "-", "so", "", "  x:"]))
                text = "\n".join(lines)
            case _:
                text = text[:at] + rng.choice((*PIECES, "\x00", "\ud800", "Infinity")) + text[at:]
    return text

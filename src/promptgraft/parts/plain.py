"""Plain texts as a reflector reads and writes them, and the way back to the bytes of their file.

A reply of a model has line feeds only, no blank lines at its ends and rarely a byte order mark. The
new text gets all of that from the text that it replaces, so that one changed word is one changed
word in the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

_BREAK = re.compile(r"\r\n|\r|\n")
_BREAKS = "\r\n"
_BEFORE = f"\ufeff{_BREAKS}"

_Range = tuple[int, int]


def shown_plain(body: str) -> str:
    """Return a plain body with line feeds only, without byte order mark and outer blank lines."""
    return _BREAK.sub("\n", body.rstrip(_BREAKS).lstrip(_BEFORE))


def restored(text: str, like: str) -> str:
    """Return a new text with the byte order mark, outer blank lines and line ends of another.

    Where the line ends are mixed, each line keeps its own, and new lines get the most frequent.

    Args:
        text: what a reflector wrote; its own line ends and outer blank lines do not count.
        like: the plain body that it replaces.
    """
    begun = like.rstrip(_BREAKS)  # first, so that a body of nothing but breaks ends with them
    core = begun.lstrip(_BEFORE)
    ends = Counter(_BREAK.findall(like))
    usual = ends.most_common(1)[0][0] if ends else "\n"
    new = shown_plain(text).split("\n")
    if len(ends) > 1:
        chosen = _own_ends(core, new, usual=usual)
        new = [line + end for line, end in zip(new, [*chosen, ""], strict=True)]
        usual = ""
    head, tail = begun[: len(begun) - len(core)], like[len(begun) :]
    return f"{head}{usual.join(new)}{tail}"


def _own_ends(core: str, new: Sequence[str], *, usual: str) -> list[str]:
    """Return the end of each new line but the last: that of the line of ``core`` it stands for."""
    old = _BREAK.split(core)
    ends = [*_BREAK.findall(core), usual]
    chosen = [usual] * len(new)
    for (begin, end), (first, last) in _paired(old, new):
        for offset in range(min(end - begin, last - first)):
            chosen[first + offset] = ends[begin + offset]
    return chosen[:-1]


def _paired(old: Sequence[str], new: Sequence[str]) -> list[tuple[_Range, _Range]]:
    """Return the stretches of lines that stand for each other: equal, or one for the other."""
    # What is equal at both ends first: a matcher may take a repeated line for another one.
    least = min(len(old), len(new))
    same = next((at for at in range(least) if old[at] != new[at]), least)
    rest = least - same
    after = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    inner_old, inner_new = old[same : len(old) - after], new[same : len(new) - after]
    matcher = SequenceMatcher(None, inner_old, inner_new, autojunk=False)
    return [
        ((0, same), (0, same)),
        *(
            ((same + begin, same + end), (same + first, same + last))
            for _, begin, end, first, last in matcher.get_opcodes()
        ),
        ((len(old) - after, len(old)), (len(new) - after, len(new))),
    ]

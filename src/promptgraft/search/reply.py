"""Reading what the reflection model replied: strictly, and in linear time."""

from __future__ import annotations

import re

import attrs

from promptgraft.targets.base import InvalidProposalError, RejectionReason

TEXT_TAG = "instruction"
JSON_TAG = "json"
"""The words that a reply's block opens with: free text, or one JSON object."""

_FENCE = re.compile(r" {0,3}+(?P<run>`{3,}+|~{3,}+)(?P<info>[^`]*+)")
_CUT_OFF = frozenset({"length", "max_tokens"})
_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@attrs.frozen
class _Block:
    info: str
    text: str


def parse_reply(reply: str, *, tag: str = TEXT_TAG, finish_reason: str = "stop") -> str:
    """Return the text in the reply's block that opens with ``tag``.

    The block is the only one with that tag, or the only one at all. Its text may
    hold blocks of its own, as long as their fences are shorter or open with a language.
    Text before the block is ignored, and so is text after it. But a bare fence after it may
    be the end of a text that a bare fence of its own cut in two, and is refused. A JSON object
    that is all of a reply needs no block.

    Raises:
        InvalidProposalError: there is no such block, more than one, or one that does not
            end for sure; or its text is empty or holds characters that no prompt should.
    """
    if finish_reason in _CUT_OFF:
        raise _unparsable("the reply was cut off before its end; write a shorter text")
    blocks = _blocks(reply.replace("\r\n", "\n").replace("\r", "\n"))
    chosen = [block for block in blocks if block.info.lower() == tag] or blocks
    bare = reply.strip()
    if not chosen and tag == JSON_TAG and bare.startswith("{") and bare.endswith("}"):
        return _checked(bare)
    if not chosen:
        raise _unparsable(f"the reply has no fenced block; open one with ```{tag}")
    if len(chosen) > 1:
        raise _unparsable(
            f"the reply has {len(chosen)} blocks that may be the text; reply with one, and open "
            "it with more backticks than the text itself uses"
        )
    if any(not block.info for block in blocks[blocks.index(chosen[0]) + 1 :]):
        raise _unparsable(
            "it is not clear where the text ends; open the block with more backticks than the "
            "text itself uses"
        )
    return _checked(chosen[0].text)


def _checked(text: str) -> str:
    body = text.strip("\n")
    if not body.strip():
        raise InvalidProposalError(RejectionReason.EMPTY, "the block is empty; write a text")
    if bad := _UNUSABLE.search(body):
        raise InvalidProposalError(
            RejectionReason.UNUSABLE_TEXT,
            f"the text holds the character U+{ord(bad[0]):04X}; leave it out",
        )
    return body


def _unparsable(detail: str) -> InvalidProposalError:
    return InvalidProposalError(RejectionReason.UNPARSABLE, detail)


def _blocks(reply: str) -> list[_Block]:
    """Return the outermost fenced blocks.

    Inside a block, a fence with a language opens an inner block; a bare fence that is long
    enough closes the innermost one (CommonMark knows no inner blocks, models write them).
    """
    blocks: list[_Block] = []
    open_runs: list[str] = []
    info = ""
    lines: list[str] = []
    for line in reply.split("\n"):
        fence = _FENCE.fullmatch(line)
        if not open_runs:
            if fence:
                open_runs.append(fence["run"])
                info, lines = fence["info"].strip(), []
            continue
        if fence and _closes(fence, open_runs[-1]):
            open_runs.pop()
            if not open_runs:
                blocks.append(_Block(info, "\n".join(lines)))
                continue
        elif fence and fence["info"].strip() and _nests(fence, open_runs[0]):
            open_runs.append(fence["run"])
        lines.append(line)
    if open_runs:
        raise _unparsable("the reply's fenced block does not end; close it with the same fence")
    return blocks


def _closes(fence: re.Match[str], opening: str) -> bool:
    run = fence["run"]
    return not fence["info"].strip() and run[0] == opening[0] and len(run) >= len(opening)


def _nests(fence: re.Match[str], outermost: str) -> bool:
    """Tell whether a fence could close the outermost block; shorter ones are plain text."""
    run = fence["run"]
    return run[0] == outermost[0] and len(run) >= len(outermost)

"""Whether a text is read in one pass, told without a limit in seconds."""

import time
from collections.abc import Callable

LENGTH = 60_000


def seconds_to(read: Callable[[str], object], text: str) -> float:
    begin = time.thread_time()
    read(text)
    return time.thread_time() - begin


def check_one_pass(read: Callable[[str], object], text_of: Callable[[int], str]) -> None:
    """Fails if `read` takes much more than four times as long for four times the text.

    `text_of` gives a text of about as many characters. One pass takes four times as long, a pass
    for each piece of the text sixteen times. A slow machine slows both, and the shortest of
    several times is free of what else the machine did.
    """
    short_text, long_text = text_of(LENGTH // 4), text_of(LENGTH)
    short = long = float("inf")
    for _ in range(8):
        short = min(short, seconds_to(read, short_text))
        long = min(long, seconds_to(read, long_text))
        if long < 8 * short:
            return
    raise AssertionError(
        f"{len(short_text)} characters took {short:.4f} s, {len(long_text)} took {long:.4f} s"
    )

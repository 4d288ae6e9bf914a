"""Soaks promptgraft in hostile input for as long as it is told: ``make soak MINUTES=5``.

Trials run in child processes, so that one that hangs, or takes the process with it, is found too.
Each is a function of the seed, its part and its number: a failure is repeated with the command that
is printed with it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import time
from collections import Counter

from soak.trials import PARTS, TESTS, bound_memory, carry_out, close

SECONDS_EACH = 10.0
"""How long the trials of one part go on before the next part has its turn."""
STUCK_SECONDS = 60.0
MOST_FAILURES = 20


def child(part: str, seed: int, first: int, seconds: float) -> int:
    """Make trials of a part until the time is up; print the number of each before it begins."""
    bound_memory()
    end = time.monotonic() + seconds
    for number in itertools.count(first):
        print(number, flush=True)
        carry_out(part, seed, number)
        if time.monotonic() > end:
            return 0
    return 0


def turn(part: str, seed: int, first: int, seconds: float) -> tuple[int, str]:
    """Have a child make trials; return the number of the last one, and its failure if any."""
    command = [sys.executable, "-m", "soak", "--child", part, str(seed), str(first), str(seconds)]
    with subprocess.Popen(
        command,
        cwd=TESTS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds + STUCK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nstuck for {STUCK_SECONDS:g} s"
    numbers = [line for line in out.splitlines() if line.isdecimal()]
    last = int(numbers[-1]) if numbers else first
    return last, "" if process.returncode == 0 else err or f"exit {process.returncode}"


def soak(minutes: float, seed: int, parts: list[str]) -> int:
    """Let the parts take turns until the time is up."""
    made: Counter[str] = Counter()
    failures: list[str] = []
    end = time.monotonic() + 60 * minutes
    print(f"seed {seed}; parts: {', '.join(parts)}", flush=True)
    for part in itertools.cycle(parts):
        left = end - time.monotonic()
        if left <= 0 or len(failures) >= MOST_FAILURES:
            break
        last, failure = turn(part, seed, made[part], min(left, SECONDS_EACH))
        made[part] = last + 1
        if failure:
            said = failure.strip().splitlines()
            failures.append(f"make soak SEED={seed} PART={part} TRIAL={last}  # {said[-1][:200]}")
            print(f"FAILED {failures[-1]}", flush=True)
    print(f"{made.total()} trials: " + ", ".join(f"{part} {made[part]}" for part in parts))
    print("\n".join([f"{len(failures)} failures", *failures]))
    return 1 if failures else 0


def main() -> int:
    """Read the command line and soak."""
    if sys.argv[1:2] == ["--child"]:
        part, seed, first, seconds = sys.argv[2:]
        return child(part, int(seed), int(first), float(seconds))
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--trial", type=int, help="only this one, in this process")
    given = parser.parse_args()
    if given.trial is not None:
        carry_out(given.part, given.seed, given.trial)
        return 0
    return soak(given.minutes, given.seed, [given.part] if given.part else list(PARTS))


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        close()

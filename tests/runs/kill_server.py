"""Runs, kills and resumes runs that are kept in directories; prints one JSON line for each trial.

Usage: ``python kill_server.py FOLDER``; standard input holds ``{"seed": N}``, which chooses one
moment of each kind, or ``{"all": true}``, and ``"part": N`` of ``"parts"``. A moment is before a
system call; after one is before the next. The first line is about the run that nobody kills.
"""

from __future__ import annotations

import difflib
import gc
import json
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "resume")]

from crash_server import Bomb  # noqa: E402

from optimizers.worlds import answer  # noqa: E402
from promptgraft.prompt import RenderedPrompt  # noqa: E402
from promptgraft.runs import RunFolder, State, find_run, list_runs, read_run  # noqa: E402
from runs.toy_runs import (  # noqa: E402
    carry_out,
    files_of,
    make_tiny_job,
    new_folder,
)

CALLS = ("write", "fsync", "replace", "rename", "ftruncate", "unlink", "mkdir")


class NamedBomb(Bomb):
    """Names each system call by what it is about."""

    def arm(self) -> None:
        for name in CALLS:
            self._arm(name)

    def _arm(self, name: str) -> None:
        call = getattr(os, name)

        def wrapped(*arguments: object, **options: object) -> object:
            self._count(f"{name} {_kind(arguments[0], name)}")
            return call(*arguments, **options)

        setattr(os, name, wrapped)


def _kind(target: object, call: str) -> str:
    """Return the kind of file that a call is about, without its numbers."""
    if isinstance(target, int):
        target = Path(f"/proc/self/fd/{target}").readlink()
    name = Path(str(target)).name
    if call == "write" and name.endswith(".tmp"):
        return ".tmp"  # whichever file it becomes, which its replacement tells
    return re.sub(r"\.new-.*", ".new", re.sub(r"\d{8}-\d{6}", "ID", re.sub(r"\b\d\b", "#", name)))


def run(root: Path) -> None:
    """Begin a run in ``root``, or go on with the one that is there."""
    job = make_tiny_job()
    folder = find_run(root) if list_runs(root) else new_folder(root, job)
    carry_out(folder, job)


def in_child(root: Path, at: int) -> list[str] | None:
    """Run in a forked process; return the moments that it passed, or None when it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        bomb, write = NamedBomb(at), os.write
        bomb.arm()
        run(root)
        write(writing, json.dumps(bomb.names).encode() if not at else b"[]")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as incoming:
        text = incoming.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    names: list[str] = json.loads(text)
    return names


def untold(folder: RunFolder) -> Iterator[str]:
    """Yield what an event tells of and what is not there."""
    record = read_run(folder)
    files = [folder.candidate(one.candidate) for one in record.candidates]
    files += [folder.rejection(one.step, one.attempt) for one in record.rejections]
    if record.started is not None:
        files.append(folder.candidate(0))
    if record.state is State.ENDED:
        files += [folder.result, folder.frontier, folder.ledger, folder.summary]
    yield from (f"{path.name} is told of and not there" for path in files if not path.exists())


def faults(root: Path, whole: dict[str, bytes], baseline: bytes) -> Iterator[str]:
    """Yield what is half-written in the folder of a run that was killed."""
    events = map(json.loads, whole["events.jsonl"].splitlines())
    known = [one["texts"].values() for one in events if one["event"] == "candidate"]
    for summary in list_runs(root):
        yield from untold(summary.folder)
        for name, data in files_of(summary.folder).items():
            if Path(name).name.startswith("."):
                continue  # what was being written stands beside, under a name of its own
            if name in ("events.jsonl", "journal.jsonl"):
                good = whole[name].startswith(data)
            elif name.startswith("best_prompts/"):
                good = any(data.decode() in texts for texts in known)
            else:
                good = data == whole[name] or (name == "candidates/0.md" and data == baseline)
            if not good:
                yield f"{name} is half-written"


def trial(root: Path, at: int, whole: dict[str, bytes], baseline: bytes) -> dict[str, object]:
    """Kill a run at a moment, look at what is there, and go on to the end."""
    shutil.rmtree(root, ignore_errors=True)
    killed = in_child(root, at) is None
    found = list(faults(root, whole, baseline))
    if in_child(root, 0) is None:
        found.append("the resumed run was killed")
    after = files_of(RunFolder(list_runs(root)[0].folder.path))
    found += [
        f"{name} differs: {_difference(whole.get(name, b''), after[name])}"
        for name in sorted(after)
        if after[name] != whole.get(name)
    ]
    found += [f"{name} is missing" for name in sorted(whole.keys() - after.keys())]
    return {"at": at, "killed": killed, "runs": len(list_runs(root)), "faults": found}


def _difference(before: bytes, after: bytes) -> list[str]:
    lines = before.decode().splitlines(), after.decode().splitlines()
    return [line[:200] for line in difflib.unified_diff(*lines, lineterm="", n=0)][:6]


def main() -> None:
    root, asked = Path(sys.argv[1]), json.loads(sys.stdin.read())
    run(root)
    whole = files_of(list_runs(root)[0].folder)
    shutil.rmtree(root)
    gc.freeze()
    names = in_child(root, 0) or []
    baseline = _page_before(root)
    kinds: dict[str, list[int]] = {}
    for number, name in enumerate(names, 1):
        kinds.setdefault(name, []).append(number)
    chance = random.Random(asked.get("seed"))
    print(json.dumps({"kinds": list(kinds)}), flush=True)
    part, parts = asked.get("part", 0), asked.get("parts", 1)
    for kind, moments in list(kinds.items())[part::parts]:
        for at in moments if "all" in asked else [chance.choice(moments)]:
            print(json.dumps({"kind": kind, **trial(root, at, whole, baseline)}), flush=True)


def _page_before(root: Path) -> bytes:
    """Return the page of the baseline before its first answer."""
    pages: list[bytes] = []

    def look(rendered: RenderedPrompt[object]) -> str:
        pages.append(folder.candidate(0).read_bytes())
        return answer(rendered)

    job = make_tiny_job(look)
    folder = new_folder(root / "before", job)
    carry_out(folder, job)
    return pages[0]


if __name__ == "__main__":
    main()

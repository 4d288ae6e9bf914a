"""The answers of a test run: each case is answered once, whoever asks for it first."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from promptgraft.evals.gate.report import Answered, Subject, answered_from
from promptgraft.evals.types import Case
from promptgraft.serde import HexDigest, digest, parse_json

_AT_ONCE = 32  # cases whose locks one process holds


class Shelf(Protocol):
    """Where answers lie that other processes of the same test run have paid for."""

    def held(self, keys: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        """Keep everybody else from answering these while the block runs."""
        ...

    def find(self, key: str) -> Answered | None:
        """Return an answer that lies there."""
        ...

    def put(self, key: str, answered: Answered) -> None:
        """Let the others have an answer."""
        ...


class NoShelf:
    """For a test run of one process."""

    def held(self, keys: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        del keys
        return contextlib.nullcontext()

    def find(self, key: str) -> Answered | None:
        del key
        return None

    def put(self, key: str, answered: Answered) -> None:
        del key, answered


class FolderShelf:
    """A folder that the workers of pytest-xdist share: a file and a lock for each case.

    Args:
        folder: made when it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def held(self, keys: Iterable[str]) -> Iterator[None]:
        from filelock import FileLock

        self._folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as locks:
            for key in sorted(keys):  # in one order, so that two workers cannot wait in a circle
                locks.enter_context(FileLock(self._folder / f"{key}.lock"))
            yield

    def find(self, key: str) -> Answered | None:
        file = self._folder / f"{key}.json"
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        return answered_from(parse_json(data, where=str(file)), where=str(file))

    def put(self, key: str, answered: Answered) -> None:
        # Not durable: the file lives no longer than the test run.
        temporary = self._folder / f"{key}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(answered.to_json()), "utf-8")
        temporary.replace(self._folder / f"{key}.json")


class Answers:
    """Answers cases at their first use and remembers what came of it.

    Args:
        shelf: what other processes have answered.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: dict[str, Answered] = {}

    def of(
        self, subject: Subject, cases: Sequence[Case], *, identity: object, workers: int = 1
    ) -> Mapping[str, Answered]:
        """Return the answers to cases, by their ids.

        Args:
            subject: answers and judges.
            cases: some of its cases.
            identity: plain data; answers to one case are shared where it is the same.
            workers: cases side by side.

        Raises:
            PromptgraftError: the evaluation cannot be carried out.
        """
        keys = {case.id: _key(identity, case) for case in cases}
        missing = [case for case in cases if keys[case.id] not in self._known]
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            with self._shelf.held(keys[case.id] for case in some):
                self._fill(subject, some, keys, workers)
        return {case_id: self._known[key] for case_id, key in keys.items()}

    def _fill(
        self, subject: Subject, cases: Sequence[Case], keys: Mapping[str, str], workers: int
    ) -> None:
        left = []
        for case in cases:
            found = self._shelf.find(keys[case.id])
            if found is None:
                left.append(case)
            else:
                self._known[keys[case.id]] = found
        if not left:
            return
        with _side_by_side(min(workers, len(left))) as executor:
            attempts = subject.evaluate(left, executor=executor).attempts
        for attempt in attempts:
            answered = Answered.of(attempt)
            self._shelf.put(keys[attempt.case_id], answered)
            self._known[keys[attempt.case_id]] = answered


@contextlib.contextmanager
def _side_by_side(workers: int) -> Iterator[ThreadPoolExecutor | None]:
    if workers == 1:
        yield None
        return
    with ThreadPoolExecutor(max_workers=workers) as executor:
        yield executor


def _key(identity: object, case: Case) -> HexDigest:
    return digest([identity, case.id])

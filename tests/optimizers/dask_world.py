"""What the tests of dask send to workers: adapters that say, in files, what happened to them."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import attrs

from optimizers.worlds import PlainAdapter, Question
from promptgraft.adapters.base import PromptResponse
from promptgraft.prompt import Prompt
from promptgraft.runtime import Deadline, SessionProtocol

OutputT = TypeVar("OutputT")


def word_of(prompt: Prompt[object]) -> str:
    [question] = prompt.params
    assert isinstance(question, Question)
    return question.word


def serve(started: Connection, kind: str, arguments: tuple[object, ...], options: Any) -> None:
    """Be a scheduler or a worker of a cluster, which says its address, until it is killed."""

    async def serving() -> None:
        async with getattr(importlib.import_module("distributed"), kind)(
            *arguments, **options
        ) as made:
            started.send(made.address)
            await made.finished()

    asyncio.run(serving())


@attrs.frozen
class Deadly:
    """Ends the process that asks for a word, the first times that it is asked for."""

    folder: Path
    times: int
    words: tuple[str, ...]
    identity: str = "task"

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        word = word_of(prompt)
        for time in range(self.times if word in self.words else 0):
            marker = self.folder / f"{word}-{time}"
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return PlainAdapter().evaluate(prompt, session=session, deadline=deadline)


@attrs.frozen
class Hanging:
    """Does not answer before somebody writes to a pipe."""

    pipe: Path
    identity: str = "task"

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        assert deadline is not None
        self.pipe.read_text()
        return PlainAdapter().evaluate(prompt, session=session, deadline=deadline)


class Heavy(PlainAdapter):
    """Is large, and says in a file whenever it is pickled and unpickled."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        object.__setattr__(self, "folder", folder)

    def __reduce__(self) -> tuple[object, ...]:
        folder: Path = self.folder  # type: ignore[attr-defined]
        with (folder / "pickled").open("a") as file:
            file.write("x")
        return _heavy, (folder, os.urandom(1) * 1_000_000)


def _heavy(folder: Path, weight: bytes) -> Heavy:
    with (folder / f"unpickled-{os.getpid()}").open("a") as file:
        file.write("x")
    return Heavy(folder)

"""A run in a process of its own, to be stopped by signals.

Usage: ``python stopped_run.py FOLDER BASE_URL [stuck]``. Says ``told`` when it is asked to stop,
then its outcome as JSON; ends as a command does. When it is stuck, answers after the first
``BEFORE_STUCK`` are never used, so that the run cannot end.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from pathlib import Path
from typing import TypeVar

from resume_world import AcknowledgingJournal

from adapters.storm.storm_world import (
    BASELINE,
    REFLECTION_MODEL,
    STEP,
    TASK_MODEL,
    adapter_of,
    run,
)
from promptgraft import LocalPromptOverridesStore, Prompt, PromptResponse
from promptgraft.adapters.base import ProviderAdapter, adapter_identity, evaluated
from promptgraft.cli.exits import ExitCode, cancelled_by_signals, conclude
from promptgraft.errors import RunCancelledError
from promptgraft.runtime import Deadline, SessionProtocol
from promptgraft.search import StopReason

OutputT = TypeVar("OutputT")

BEFORE_STUCK = BASELINE + STEP + 2


class Stuck:
    """An adapter whose answers get lost in a thread that never ends."""

    def __init__(self, adapter: ProviderAdapter) -> None:
        self._adapter = adapter
        self._answered = itertools.count(1)
        self.identity = adapter_identity(adapter)

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Answer, or never come back."""
        response = evaluated(self._adapter, prompt, session=session, deadline=deadline)
        if next(self._answered) > BEFORE_STUCK:
            threading.Event().wait()
        return response


def _tell() -> None:
    # Called by a signal handler, which may interrupt whoever prints.
    os.write(1, b"told\n")


def main(folder: Path, base_url: str, stuck: str = "") -> ExitCode:
    """Run until somebody sends a signal."""
    task = adapter_of("openai", TASK_MODEL, base_url)
    journal = AcknowledgingJournal(
        folder / "journal.jsonl", folder / "acknowledged", lambda _: None
    )
    with cancelled_by_signals() as cancellation:
        cancellation.listen(_tell)
        result = run(
            Stuck(task) if stuck else task,
            adapter_of("openai", REFLECTION_MODEL, base_url),
            journal=journal,
            store=LocalPromptOverridesStore(folder),
            cancellation=cancellation,
        )
    journal.close()
    outcome = {"reason": result.stop_reason, "best": result.best_index}
    print(json.dumps(outcome), flush=True)
    if result.stop_reason is StopReason.CANCELLED:
        return conclude(RunCancelledError(result.stop_detail))
    return ExitCode.OK


if __name__ == "__main__":
    folder, *others = sys.argv[1:]
    sys.exit(main(Path(folder), *others))

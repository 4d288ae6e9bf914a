"""An application of the user's: a function that works with two texts.

It knows the words that stand in its rules and its notes. As a program it improves them, with a
journal: ``python words_app.py FOLDER [FATAL]`` kills itself at the call with the number FATAL, and
``python words_app.py FOLDER --texts TAG`` prints the texts in force.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from optimizers.worlds import config, propose
from promptgraft import (
    FileJournal,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    LocalPromptOverridesStore,
    OptimizationContext,
    ScriptedAdapter,
    Texts,
)

TEXTS = {"rules": "\ufeff$HOME {{ y }} {word}\r\nKnown words:", "notes": "More words:"}


def known(texts: Mapping[str, str], word: str, place: int) -> str:
    """Say whether a word is known."""
    assert isinstance(place, int)
    return "ok" if word in f"{texts['rules']} {texts['notes']}".split() else "no"


@attrs.frozen
class Known:
    """The same as an object."""

    identity: str = "known"

    def __call__(self, texts: Mapping[str, str], word: str, place: int) -> str:
        return known(texts, word, place)


@attrs.frozen
class KnownAsync:
    """The same with ``await``, and with the same identity."""

    identity: str = "known"

    async def __call__(self, texts: Mapping[str, str], word: str, place: int) -> str:
        for _ in range(place % 3):
            await asyncio.sleep(0)
        return known(texts, word, place)


def texts_of(run: Any = known, texts: Mapping[str, str] = TEXTS, **settings: Any) -> Texts:
    return Texts(texts, run=run, **{"key": "words", "placeholders": ["{word}"], **settings})


def examples() -> tuple[GepaExample, ...]:
    """Return questions about six words, twice; their parameters are a text and a number."""
    return tuple(
        GepaExample(id=f"e{n}", params=(f"w{n % 6}", n), label=f"w{n % 6}") for n in range(12)
    )


def optimized(
    texts: Texts, *, settings: Mapping[str, Any] | None = None, **more: Any
) -> GepaResult:
    """Improve texts; every section that may change is targeted."""
    given = {"reflection_adapter": ScriptedAdapter(propose, identity="writer"), **more}
    chosen = {"target_section_paths": (), "training_examples": examples(), **(settings or {})}
    return GepaOptimizer(OptimizationContext(**given), config(**chosen)).optimize(texts)


def main(folder: Path, *words: str) -> None:
    """Carry out what the head of this file says."""
    store = LocalPromptOverridesStore(folder)
    if words[:1] == ("--texts",):
        print(json.dumps(dict(texts_of().current(store, words[1]))))
        return
    calls = itertools.count(1)

    async def paid(texts: Mapping[str, str], word: str, place: int) -> str:
        with (folder / "calls").open("a") as log:
            log.write(".")
        if words == (str(next(calls)),):
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0)
        return known(texts, word, place)

    with FileJournal(folder / "journal.jsonl") as journal:
        # When it is to be killed stands in the function.
        result = optimized(
            texts_of(paid), overrides_store=store, journal=journal, reuse_scores=True
        )
    print(json.dumps([result.best_pareto_mean, result.total_rollouts, result.persisted]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

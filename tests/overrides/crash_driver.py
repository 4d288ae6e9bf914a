"""Runs a scenario again and again, each time killed at the next effect on the file system.

    python crash_driver.py FOLDER SCENARIO

Each run has a store of its own below FOLDER (:mod:`killing`). A line ``RUN SIGNAL`` is printed for
each.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from killing import FEWER, Killer, at_every_effect, killed_by, say
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing import FakeClock
from promptgraft.testing.prompts import JUDGE, PROMPT, RULES, TONE, WRITER, set_all

OTHER = attrs.evolve(PROMPT, key="other")


class StoreKiller(Killer):
    """Also counts what is removed, and folders."""

    names = (*Killer.names, "unlink", "mkdir")


class IntentKiller(StoreKiller):
    """Kills as soon as the intent of a write of several tags has its name."""

    def _replace(self, source: str, target: str, **folders: int) -> None:
        super()._replace(source, target, **folders)
        if os.path.basename(target) == ".intent.json":  # noqa: PTH119
            os.kill(os.getpid(), signal.SIGKILL)


def two_revisions(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")
    store.set_section_override(PROMPT, path=TONE, body="two")


def nothing(store: LocalPromptOverridesStore) -> None:
    del store


def one_revision(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")


def rolled_back(store: LocalPromptOverridesStore) -> None:
    two_revisions(store)
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key)


def do_write(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(PROMPT, path=RULES, body="written")


def do_rollback(store: LocalPromptOverridesStore) -> None:
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key)


def do_forward(store: LocalPromptOverridesStore) -> None:
    latest = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key)[-1]
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key, revision=latest.id)


def do_delete(store: LocalPromptOverridesStore) -> None:
    store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")


def some_revisions(store: LocalPromptOverridesStore) -> None:
    two_revisions(store)
    store.set_section_override(WRITER, path=TONE, body="one")


def do_several(store: LocalPromptOverridesStore) -> None:
    set_all(store, PROMPT, WRITER, JUDGE, path=TONE, body="several")


def left_by_a_killed_writer(store: LocalPromptOverridesStore) -> None:
    some_revisions(store)
    assert killed_by(lambda: do_several(store), IntentKiller("never", 0)) == signal.SIGKILL


def do_write_beside(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(OTHER, path=RULES, body="beside")


Step = Callable[[LocalPromptOverridesStore], None]

SCENARIOS: dict[str, tuple[Step, Step]] = {
    "first-write": (nothing, do_write),
    "second-write": (one_revision, do_write),
    "third-write": (two_revisions, do_write),
    "write-after-rollback": (rolled_back, do_write),
    "rollback": (two_revisions, do_rollback),
    "rollback-of-the-first": (one_revision, do_rollback),
    "rollback-forward": (rolled_back, do_forward),
    "delete": (two_revisions, do_delete),
    "write-of-several": (some_revisions, do_several),
    "write-after-a-killed-one": (left_by_a_killed_writer, do_write),
    "write-beside-a-killed-one": (left_by_a_killed_writer, do_write_beside),
}


def warm_up() -> None:
    """Import what a store needs when it is used, so that no child has to."""
    with tempfile.TemporaryDirectory() as name:
        store = LocalPromptOverridesStore(name, clock=FakeClock())
        rolled_back(store)
        do_forward(store)
        do_several(store)
    gc.freeze()


warm_up()  # once for all scenarios, which are forked


def store_in(root: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(root, clock=FakeClock())


def main(folder: Path, scenario: str) -> None:
    """Leave the state before in ``FOLDER/before`` and one folder for each run."""
    prepare, step = SCENARIOS[scenario]
    before = folder / "before"
    before.mkdir()
    prepare(store_in(before))

    def run(when: str, fatal: int) -> int:
        root = before.with_name(f"{when}-{fatal}")
        shutil.copytree(before, root)
        store = store_in(root)
        number = killed_by(lambda: step(store), StoreKiller(when, fatal))
        say(root, number)
        return number

    at_every_effect(run, FEWER)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

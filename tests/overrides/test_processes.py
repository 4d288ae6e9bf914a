"""Several processes on one root."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import Programs
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing import FakePrompt
from promptgraft.testing.prompts import bodies

WRITERS, EACH = 4, 25
PATHS = [(f"s{writer}-{index}",) for writer in range(WRITERS) for index in range(EACH)]
PROMPT = FakePrompt(bodies=dict.fromkeys(PATHS, "source"))
ADDRESS = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}

WRITER = """
import fcntl, sys
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing.prompts import FakePrompt

store = LocalPromptOverridesStore(sys.argv[1])
paths = [(key,) for key in sys.argv[3:]]
print("ready", flush=True)
fcntl.flock(open(sys.argv[2]), fcntl.LOCK_SH)
for path in paths:
    prompt = FakePrompt(bodies={path: "source"})
    store.set_section_override(prompt, path=path, body=f"by {path[0]}")
"""


@pytest.fixture
def root() -> Iterator[Path]:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name)


def test_four_processes_that_write_at_once_lose_nothing(
    root: Path, tmp_path: Path, programs: Programs
) -> None:
    parts = [PATHS[start : start + EACH] for start in range(0, len(PATHS), EACH)]
    with (tmp_path / "go").open("w") as go, contextlib.ExitStack() as begun:
        fcntl.flock(go, fcntl.LOCK_EX)
        writers = [
            begun.enter_context(
                programs.started("-c", WRITER, root, go.name, *(key for (key,) in part))
            )
            for part in parts
        ]
        assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * WRITERS
        fcntl.flock(go, fcntl.LOCK_UN)
        assert [writer.wait(60) for writer in writers] == [0] * WRITERS

    store = LocalPromptOverridesStore(root)
    assert bodies(store.resolve(PROMPT.descriptor)) == {path: f"by {path[0]}" for path in PATHS}
    history = store.history(**ADDRESS)
    assert [revision.number for revision in history] == list(range(1, len(PATHS) + 1))
    for earlier, later in itertools.pairwise(history):
        assert later.parent == earlier.id
        assert len(later.override.sections) == len(earlier.override.sections) + 1

"""Several processes on one root."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing import FakePrompt
from promptgraft.testing.prompts import bodies

WRITERS, EACH = 4, 25
PATHS = [(f"s{writer}-{index}",) for writer in range(WRITERS) for index in range(EACH)]
PROMPT = FakePrompt(bodies=dict.fromkeys(PATHS, "source"))
ADDRESS = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}

WRITER = """
import sys
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing.prompts import FakePrompt

store = LocalPromptOverridesStore(sys.argv[1])
paths = [(key,) for key in sys.argv[2:]]
print("ready", flush=True)
sys.stdin.readline()
for path in paths:
    prompt = FakePrompt(bodies={path: "source"})
    store.set_section_override(prompt, path=path, body=f"by {path[0]}")
"""


@pytest.fixture
def root() -> Iterator[Path]:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name)


def test_four_processes_that_write_at_once_lose_nothing(root: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, root, *(key for (key,) in part)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in (PATHS[start : start + EACH] for start in range(0, len(PATHS), EACH))
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            writer.communicate(timeout=60)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert [writer.returncode for writer in writers] == [0] * WRITERS

    store = LocalPromptOverridesStore(root)
    assert bodies(store.resolve(PROMPT.descriptor)) == {path: f"by {path[0]}" for path in PATHS}
    history = store.history(**ADDRESS)
    assert [revision.number for revision in history] == list(range(1, len(PATHS) + 1))
    for earlier, later in itertools.pairwise(history):
        assert later.parent == earlier.id
        assert len(later.override.sections) == len(earlier.override.sections) + 1

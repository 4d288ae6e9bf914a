"""Running the command line as users do: in a process, or in this one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from cli.console_lines import unlisted
from programs import Programs
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.main import run
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    PromptOverride,
    Provenance,
    Revision,
    SectionOverride,
)
from promptgraft.prompt import MarkdownSection, PromptTemplate
from promptgraft.testing import FakeClock

SOURCE = """
from promptgraft import MarkdownSection, Prompt, PromptTemplate

TEMPLATE = PromptTemplate(
    ns="support",
    key="triage",
    sections=[
        MarkdownSection(title="Rules", key="rules", template="Choose a queue for $subject."),
        MarkdownSection(title="Tone", key="tone", template="Be kind."),
    ],
)
"""
TEMPLATE = PromptTemplate[object](
    ns="support",
    key="triage",
    sections=(
        MarkdownSection(title="Rules", key="rules", template="Choose a queue for $subject."),
        MarkdownSection(title="Tone", key="tone", template="Be kind."),
    ),
)
TAG = "canary"
SCORES = FrozenMap({"baseline": 0.5, "best": 0.75})
Bodies = Mapping[tuple[str, ...], str]
FIRST: Bodies = {("rules",): "Choose the queue for $subject.\nThink first."}
SECOND: Bodies = {("rules",): "Choose the queue for $subject.\nThink twice.", ("tone",): "Be warm."}


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


class Console:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        code = run(arguments)
        captured = self._capsys.readouterr()
        if code != ExitCode.INTERNAL_ERROR:
            assert not (left := unlisted(arguments, captured.out + captured.err)), left
        return Ended(code, captured.out, captured.err)


def process(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, with nothing to read."""
    return subprocess.run(
        [sys.executable, "-m", "promptgraft", *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def on_terminals(
    programs: Programs,
    *arguments: str,
    number: int = 1,
    folder: Path | None = None,
    environment: Mapping[str, str],
) -> tuple[int, list[str]]:
    """Return the exit code of a command, and what terminals got for the last of its two streams."""
    ours, theirs = zip(*(pty.openpty() for _ in range(number)), strict=True)
    command = ("-m", "promptgraft", *arguments)
    with (
        ThreadPoolExecutor(number) as readers,
        programs.started(
            *command, folder=folder, environment=environment, terminals=theirs
        ) as child,
    ):
        read = readers.map(read_terminal, ours)
        try:
            code = child.wait(60)
        finally:
            for end in theirs:
                os.close(end)
        return code, [got.decode() for got in read]


def read_terminal(ours: int) -> bytes:
    """Return what our end of a terminal gets until the other one is closed; then close it."""
    got = b""
    try:
        while part := os.read(ours, 65536):
            got += part
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(ours)
    return got


def write(
    folder: Path,
    sections: Bodies,
    *,
    tag: str = TAG,
    note: str = "",
    template: PromptTemplate[object] = TEMPLATE,
) -> Revision:
    """Write sections to the store of ``folder`` at a time that tests know."""
    store = LocalPromptOverridesStore(folder, clock=FakeClock())
    descriptor = template.descriptor
    overrides = {}
    for path, body in sections.items():
        section = descriptor.section(path)
        assert section is not None
        overrides[path] = SectionOverride(path=path, expected_hash=section.content_hash, body=body)
    store.upsert(
        descriptor,
        PromptOverride(ns=descriptor.ns, prompt_key=descriptor.key, tag=tag, sections=overrides),
        provenance=Provenance(run_id="0123456789ab", note=note, scores=SCORES) if note else None,
    )
    revision = store.current(ns=descriptor.ns, prompt_key=descriptor.key, tag=tag)
    assert revision is not None
    return revision

"""The journal in a file and the one in memory, driven in lock step."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from journal.test_contract import ASKED, OTHER, RUN
from promptgraft.errors import JournalError, JournalMismatchError
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import Answer, FileJournal, MemoryJournal


class JournalsAgree(RuleBasedStateMachine):
    """Drives both journals in lock step; the one in the file is closed and opened at will."""

    keys = st.sampled_from(["a", "b/é", "\ud800", 'q"\\'])
    questions = st.sampled_from([ASKED, OTHER])

    def __init__(self) -> None:
        super().__init__()
        self._scope = contextlib.ExitStack()
        folder = self._scope.enter_context(tempfile.TemporaryDirectory())
        self._path = Path(folder) / "journal.jsonl"
        self._memory = MemoryJournal()
        self._memory.begin(RUN)
        self._file = FileJournal(self._path)
        self._file.begin(RUN)

    @rule(key=keys, question=questions, answer=st.none() | st.integers() | st.text())
    def append(self, key: str, question: str, answer: Json) -> None:
        digest = digest_text(question)
        outcomes = set()
        for journal in (self._file, self._memory):
            try:
                journal.append(key, digest, "rollout", answer)
                outcomes.add("recorded")
            except JournalError:
                outcomes.add("refused")
        assert len(outcomes) == 1

    @rule(key=keys, question=questions)
    def find(self, key: str, question: str) -> None:
        digest = digest_text(question)
        found: list[Answer | str | None] = []
        for journal in (self._file, self._memory):
            try:
                found.append(journal.find(key, digest))
            except JournalMismatchError:
                found.append("mismatch")
        assert found[0] == found[1]

    @rule()
    def sync(self) -> None:
        self._file.sync()

    @rule()
    def open_again(self) -> None:
        self._file.close()
        self._file = FileJournal(self._path)
        self._file.begin(RUN)

    @invariant()
    def both_hold_the_same(self) -> None:
        assert len(self._file) == len(self._memory)
        assert list(self._file.records()) == list(self._memory.records())

    def teardown(self) -> None:
        self._file.close()
        self._scope.close()


JournalsAgree.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestJournalsAgree = JournalsAgree.TestCase

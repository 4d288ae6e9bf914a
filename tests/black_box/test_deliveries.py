"""In whole runs of many workers, every rollout reads the texts of its own candidate."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from black_box.service import Reply, said, serving
from black_box.stored_texts import contents
from optimizers.worlds import config, judge, propose
from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    GepaExample,
    GepaOptimizer,
    HttpAgent,
    OptimizationContext,
    ScriptedAdapter,
)
from promptgraft.agents.call import AgentAnswer, Delivery
from promptgraft.agents.delivery import FolderCopy, InCall
from promptgraft.agents.live import LiveFiles
from promptgraft.agents.sources import FileSource, Sources, read_sources
from promptgraft.ground.serde import Json

SEARCHES = int(os.environ.get("PROMPTGRAFT_SEARCHES", "1"))  # 6 have more than 2,000 rollouts
WORDS = [f"word{number}" for number in range(40)]
TEXTS = {"system": "System.", "skill": "Skill."}

Reads = list[tuple[str, str]]
"""The digest of what the agent read, and that of the texts of the candidate."""


def digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(sorted(texts.items()))).encode()).hexdigest()


def answered(query: str, found: Mapping[str, str]) -> AgentAnswer:
    known = " ".join(found.values()).split()
    return AgentAnswer(text="ok" if query in known else "no", output=digest(found))


def from_call(query: str, call: AgentCall) -> AgentAnswer:
    return answered(query, call.texts)


def from_files(query: str, call: AgentCall) -> AgentAnswer:
    assert call.folder is not None
    found = {name: (call.folder / f"{name}.md").read_text() for name in TEXTS}
    again = {name: (call.folder / f"{name}.md").read_text() for name in TEXTS}
    return answered(query, found if found == again else {})


class Remembered:
    """An agent that remembers what it read, and what it should have read."""

    def __init__(self, agent: Callable[[str, AgentCall], AgentAnswer], reads: Reads) -> None:
        self._agent = agent
        self._reads = reads
        self.identity = "digest 1"

    async def __call__(self, query: str, call: AgentCall) -> AgentAnswer:
        answer = self._agent(query, call)
        self._reads.append((str(answer.output), digest(call.texts)))
        return answer


def examples(kind: str) -> tuple[GepaExample, ...]:
    found = [(f"{kind}-{word}", word) for word in WORDS]
    return tuple(
        GepaExample(id=id_, params=(Case(id=id_, input=word),), label=word) for id_, word in found
    )


def searched(subject: BlackBox, seed: int) -> int:
    """Run a search with 16 workers and four proposals at once, held-out; return its rollouts."""
    settings = config(
        seed=seed,
        rollout_budget=340,
        proposals_per_step=4,
        target_section_paths=(),
        training_examples=(*examples("compared"), *examples("learned")),
        pareto_set_size=40,
        held_out=examples("held-out"),
        feedback_fn=judge,
    )
    with ThreadPoolExecutor(16) as executor:
        context = OptimizationContext(
            reflection_adapter=ScriptedAdapter(propose, identity="writer"), executor=executor
        )
        result = GepaOptimizer(context, settings).optimize(subject)
    assert result.found_better
    return result.total_rollouts


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "app").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "app" / f"{name}.md").write_text(text)
    files = {name: FileSource(Path(f"{name}.md")) for name in TEXTS}
    return read_sources(files, folder=tmp_path / "app")


@pytest.mark.parametrize(
    ("make", "agent"),
    [
        (lambda sources: InCall(), from_call),
        (lambda sources: FolderCopy(sources, sources.folder), from_files),
        (LiveFiles, from_files),
    ],
    ids=["argument", "folder", "live"],
)
def test_every_rollout_reads_the_texts_of_its_own_candidate(
    sources: Sources,
    make: Callable[[Sources], Delivery],
    agent: Callable[[str, AgentCall], AgentAnswer],
) -> None:
    before, reads = contents(sources.folder), Reads()
    subject = BlackBox(
        sources.texts, agent=Remembered(agent, reads), delivery=make(sources), key="agent"
    )
    rollouts = sum(searched(subject, seed) for seed in range(SEARCHES))
    assert 250 * SEARCHES < rollouts == len(reads)
    assert len({expected for _, expected in reads}) > 10
    assert [one for one in reads if one[0] != one[1]] == []
    assert contents(sources.folder) == before


class RememberedService(HttpAgent):
    """A service that says what it read; remembers that, and what it should have read."""

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        answer = super().ask(query, call)
        text, _, read = answer.text.partition(" ")
        READS.append((read, digest(call.texts)))
        return AgentAnswer(text=text)


READS = Reads()


def test_every_request_carries_the_texts_of_its_own_candidate(sources: Sources) -> None:
    READS.clear()

    def brain(body: Any, _: object) -> Reply:
        found = answered(body["query"], body["texts"])
        return said({"read": f"{found.text} {found.output}"})

    with serving(brain) as service:
        fields: dict[str, Json] = {name: f"{{texts.{name}}}" for name in TEXTS}
        agent = RememberedService(
            url=service.url, json={"query": "{query}", "texts": fields}, answer="$.read"
        )
        subject = BlackBox(sources.texts, agent=agent, delivery=InCall("request"))
        assert sum(searched(subject, seed) for seed in range(SEARCHES)) == len(READS)
    assert len({expected for _, expected in READS}) > 10
    assert [one for one in READS if one[0] != one[1]] == []

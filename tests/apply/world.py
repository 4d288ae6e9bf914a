"""A project with a Markdown prompt and tools beside it, and a run of it that improved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from promptgraft.cli.main import run
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PromptOverride,
    Revision,
    SectionOverride,
    ToolOverride,
)
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.entry import Entry
from promptgraft.project import open_project
from promptgraft.prompt import Prompt

PROMPT = """---
ns: depot
key: triage
tools: tools.yaml
output:
  choices: [lamps, bins]
---

# Task

Name the team. Look it up with the tool if you must.

# Teams

- lamps: light
- bins: rubbish

# Report {#report .frozen}

$report
"""
TOOLS = """# The handbook.
tools:
  - name: lookup
    description: Look up a word.
    parameters:
      word: {type: string, description: What to look for.}
    result: {type: string}
"""
PROJECT = """
version: 1
prompts: {triage: prompts/triage.md}
dataset: {path: cases.jsonl}
splits: {ratio: {train: 0.5, validation: 0.5}, seed: 0}
metrics: [{name: team, kind: classification, labels: [lamps, bins]}]
models: {task: {provider: offline}}
optimizer:
  {rollout_budget: 50, targets: {sections: [teams]},
   strategy: {preset: paper}}
store: {path: ., tag: live}
"""
CASES = {
    "lamps": ["bulb in mill lane", "bulb burnt out", "bulb flickers", "post leans", "post broken"],
    "bins": ["fridge dumped", "fridge and sofa", "sofa on the path", "bottles lie", "bottles here"],
}
NEW_TEAMS = "- lamps: light, bulb, post\n- bins: rubbish, fridge, sofa"
SAYS = "Look up a word of the handbook."


@attrs.frozen
class World:
    """The project on disk, in a state of its own for each test."""

    folder: Path

    @property
    def run(self) -> Path:
        (found,) = (self.folder / "runs").iterdir()
        return found

    @property
    def prompt(self) -> Prompt[Any]:
        return open_project(self.folder / "promptgraft.yaml").prompt().prompt

    @property
    def texts(self) -> dict[str, str]:
        return {name: (self.folder / name).read_bytes().decode() for name in OLD}

    @property
    def teams(self) -> str:
        """What the winner of the run says."""
        (change,) = self.candidate()["entries"].values()
        (section,) = change["sections"]
        body: str = section["body"]
        return body

    def edit(self, name: str, before: str, after: str) -> None:
        path = self.folder / name
        text = path.read_bytes().decode()
        assert text.count(before) == 1
        path.write_bytes(text.replace(before, after).encode())

    def candidate(self) -> dict[str, Any]:
        lines = (self.run / "events.jsonl").read_text("utf-8").splitlines()
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [event for event in events if event["event"] == "candidate"][-1]

    def let_the_run_end(self, **changes: object) -> None:
        """Change what the last event says."""
        path = self.run / "events.jsonl"
        *before, end = path.read_text("utf-8").splitlines()
        changed = json.dumps({**json.loads(end), **changes})
        path.write_text("\n".join([*before, changed]) + "\n", "utf-8")

    def let_the_winner_say(self, *entries: Entry) -> None:
        """Change what the last candidate is made of."""
        descriptor = self.prompt.descriptor
        empty = PromptOverride(ns=descriptor.ns, prompt_key=descriptor.key, tag="live")
        changes = {
            f"{descriptor.ns}/{descriptor.key}": plain_lists(empty.holding(entries).entries())
        }
        said = {**self.candidate(), "entries": changes}
        path = self.run / "events.jsonl"
        lines = path.read_text("utf-8").splitlines()
        (place,) = (at for at, line in enumerate(lines) if json.loads(line).get("n") == said["n"])
        lines[place] = json.dumps(said)
        path.write_text("\n".join(lines) + "\n", "utf-8")

    def add_a_candidate(self, *entries: Entry) -> None:
        """Let the run have one more candidate, over the baseline."""
        path, before = self.run / "events.jsonl", self.candidate()
        *lines, end = path.read_text("utf-8").splitlines()
        ended = json.loads(end)
        more = {**before, "n": ended["n"], "candidate": before["candidate"] + 1}
        ended = {**ended, "n": ended["n"] + 1, "means": [*ended["means"], more["mean"]]}
        added = [json.dumps(more), json.dumps(ended)]
        path.write_text("\n".join([*lines, *added]) + "\n", "utf-8")
        self.let_the_winner_say(*entries)

    def section(self, key: str, body: str) -> SectionOverride:
        found = self.prompt.descriptor.section((key,))
        assert found is not None
        return SectionOverride(path=(key,), expected_hash=found.content_hash, body=body)

    def tool(self, description: str) -> ToolOverride:
        found = self.prompt.descriptor.tool("lookup")
        assert found is not None
        return ToolOverride(
            name="lookup", expected_hash=found.content_hash, description=description
        )

    def both(self) -> tuple[Entry, Entry]:
        """Entries of which each changes another file."""
        return self.section("teams", NEW_TEAMS), self.tool(SAYS)

    def hold(self, *entries: Entry, tag: str = "live") -> None:
        """Let a tag of the store hold just these entries."""
        descriptor = self.prompt.descriptor
        held = PromptOverride(ns=descriptor.ns, prompt_key=descriptor.key, tag=tag)
        address = OverrideAddress(descriptor.ns, descriptor.key, tag)
        LocalPromptOverridesStore(self.folder).mutate(address, lambda _: held.holding(entries))

    def history(self, tag: str = "live") -> tuple[Revision, ...]:
        store = LocalPromptOverridesStore(self.folder)
        return store.history(ns="depot", prompt_key="triage", tag=tag)

    def held(self, tag: str = "live") -> dict[str, Entry]:
        store = LocalPromptOverridesStore(self.folder)
        current = store.current(ns="depot", prompt_key="triage", tag=tag)
        return {entry.part: entry for entry in current.override.entries()} if current else {}


OLD = {"prompts/triage.md": PROMPT, "prompts/tools.yaml": TOOLS}
NEW = {
    "prompts/triage.md": PROMPT.replace("- lamps: light\n- bins: rubbish", NEW_TEAMS),
    "prompts/tools.yaml": TOOLS.replace("Look up a word.", SAYS),
}


def build(folder: Path) -> Path:
    """Write the project and run it; return its folder."""
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts/triage.md").write_text(PROMPT, "utf-8")
    (folder / "prompts/tools.yaml").write_text(TOOLS, "utf-8")
    (folder / "promptgraft.yaml").write_text(PROJECT, "utf-8")
    lines = [
        json.dumps({"id": f"{team}-{place}", "input": text, "expected": team})
        for team, texts in CASES.items()
        for place, text in enumerate(texts * 2)
    ]
    (folder / "cases.jsonl").write_text("\n".join(lines), "utf-8")
    # So few cases can show nothing; what applies a winner is tested, and not what finds one.
    assert run(["optimize", "--quiet", "--project", str(folder / "promptgraft.yaml")]) == 1
    World(folder).let_the_run_end(verdict="improved")
    return folder

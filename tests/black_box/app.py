"""A project whose agent has two texts in files and one that functions keep, and a run of it."""

from __future__ import annotations

import json
from pathlib import Path

from apply.world import CASES, World
from promptgraft.cli.main import run

SKILL = ".claude/skills/s/SKILL.md"
FRONT = "---\r\nname: s\r\n---\r\n\r\n"
CODE = """
from pathlib import Path

import store

def call(query, call):
    lines = [line[2:].split(": ") for line in call.texts["teams"].splitlines() if ": " in line]
    found = [team for team, words in lines if set(words.split(", ")) & set(query.split())]
    return found[0] if found else "lamps"
"""
STORE = """
from pathlib import Path

class Stored:
    path = Path(__file__).with_name("stored.txt")

    async def read(self):
        return self.path.read_text()

    async def write(self, text):
        if Path(__file__).with_name("down").exists():
            raise ConnectionError("the store is down")
        self.path.write_text(text)

SOURCE = Stored()
"""
WRITER = """
from promptgraft import ScriptedAdapter

NEW = "- lamps: light, bulb, post\\n- bins: rubbish, fridge, sofa, bottles"

def writer():
    return ScriptedAdapter(lambda _: f"```instruction\\n{NEW}\\n```", identity="writer")
"""
PROJECT = f"""version: 1
prompts:
  desk:
    files: {{teams: teams.md, skill: {{path: {SKILL}, frozen: front_matter}}}}
    callbacks: store.py:SOURCE
agent: {{python: agent.py:call}}
dataset: {{path: cases.jsonl}}
splits: {{ratio: {{train: 0.4, validation: 0.3, test: 0.3}}, seed: 0}}
metrics: [{{name: team, kind: classification, labels: [lamps, bins]}}]
models: {{reflection: {{python: 'writer.py:writer'}}}}
optimizer:
  rollout_budget: 200
  targets: {{sections: [teams]}}
  additions: [lines, whole_prompt, blame]
store: {{path: ., tag: live}}
"""
OLD = {
    "teams.md": b"\xef\xbb\xbf- lamps: light\n- bins: rubbish",
    SKILL: f"{FRONT}Ask first.\r\n".encode(),
    "stored.txt": b"Be kind.",
}
NEW = {
    "teams.md": b"\xef\xbb\xbf- lamps: light, bulb, post\n- bins: rubbish, fridge, sofa, bottles",
    SKILL: f"{FRONT}Act first.\r\nAsk later.\r\n".encode(),
    "stored.txt": b"Be brief.",
}
SAID = {
    "teams": "- lamps: light, bulb, post\n- bins: rubbish, fridge, sofa, bottles",
    "skill": "Act first.\nAsk later.",
    "source": "Be brief.",
}


class App(World):
    """The project on disk."""

    @property
    def sources(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in OLD}

    def let_all_three_change(self) -> None:
        self.let_the_winner_say(*(self.section(name, body) for name, body in SAID.items()))


def write(folder: Path, *, more: str = "", copies: int = 2) -> Path:
    """Write the project; return its file."""
    for name, data in OLD.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    lines = [
        json.dumps({"id": f"{team}-{place}", "input": text, "expected": team})
        for team, texts in CASES.items()
        for place, text in enumerate(texts * copies)
    ]
    code = {
        "agent.py": CODE,
        "store.py": STORE,
        "writer.py": WRITER,
        "cases.jsonl": "\n".join(lines),
    }
    for name, text in {**code, "promptgraft.yaml": PROJECT + more}.items():
        (folder / name).write_text(text, "utf-8")
    return folder / "promptgraft.yaml"


def build(folder: Path) -> Path:
    """Write the project and run it; return its folder."""
    run(["optimize", "--quiet", "--project", str(write(folder))])
    App(folder).let_the_run_end(verdict="improved")
    return folder

"""An image travels: project, rollout, judge, reflection, journal, kill, resume, report.

Everything that answers is a server in this process that speaks OpenAI's protocol, and sees: it
reads the colour of a photo in the bytes that it is sent, never in a name or a caption.
"""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from image_files import png
from programs import Programs
from promptgraft.ground.serde import Json
from servers.behaviour import Answer, Asked
from servers.loopback import KEY, LoopbackServer
from servers.openai_chat import OpenAIChat

MODEL = "gpt-6-luna"
LIGHTS = {"stop": (200, 0, 0), "go": (0, 200, 0), "wait": (200, 200, 0)}
PROJECT = """\
version: 1
prompts: {light: light.md}
dataset: {path: cases.csv, images: [photo]}
splits: {ratio: {train: 0.4, validation: 0.3, test: 0.3}}
metrics:
  - {name: llm_final_response, judges: [seeing]}
models:
  task: {provider: openai, model: gpt-6-luna, base_url: ADDRESS, api_key: "${LIGHT_KEY}"}
  judges:
    seeing: {provider: openai, model: gpt-6-luna, base_url: ADDRESS, api_key: "${LIGHT_KEY}"}
optimizer: {rollout_budget: 100, minibatch_size: 3, seed: 1}
"""
PROMPT = """\
---
ns: tests
key: light
output: {choices: [stop, go, wait]}
---

# Rules {#rules}

Name the light.

# Photo {#photo .frozen}

$photo
"""


def name_of(number: int) -> str:
    return f"{number:02}.png"


def photo_of(number: int) -> bytes:
    """Return a photo of one of the lights; each is a little different."""
    red, green, blue = [*LIGHTS.values()][number % 3]
    return png(colour=(red, green, blue + number))


LABELS = {photo_of(number): [*LIGHTS][number % 3] for number in range(45)}


def images_in(body: Json) -> list[bytes]:
    """Return the images of a request, in order."""
    addresses = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", json.dumps(body))
    return [base64.b64decode(address) for address in addresses]


@attrs.define
class Brain:
    """Answers as the three models, and counts which of them was shown images."""

    shown: dict[str, int] = attrs.field(factory=dict)
    before_answer: Callable[[int], None] = lambda _: None

    def __call__(self, asked: Asked) -> Answer:
        self.before_answer(asked.number)
        text, images = "\n".join(asked.texts), images_in(asked.body)
        role = "reflection" if "You improve" in text else "judge" if "You judge" in text else "task"
        self.shown[role] = self.shown.get(role, 0) + len(images)
        return Answer(text=getattr(self, f"as_{role}")(text, images))

    def as_task(self, text: str, images: list[bytes]) -> str:
        [label] = [LABELS[image] for image in images]
        return json.dumps({"answer": label if f"{label} light" in text else "go"})

    def as_judge(self, text: str, images: list[bytes]) -> str:
        [label] = [LABELS[image] for image in images]
        answer = re.findall(r"## Answer\n\n`+\n(\w+)", text)[0]
        category = "correct" if answer == label else "wrong"
        return json.dumps({"reason": f"It is {label}.", "category": category})

    def as_reflection(self, text: str, images: list[bytes]) -> str:
        known = set(re.findall(r"(\w+) light", text.partition("## Examples")[0]))
        lines = sorted(f"A {LABELS[image]} light may be shown." for image in images)
        kept = sorted(f"A {label} light may be shown." for label in known & {*LIGHTS})
        rules = "\n".join(dict.fromkeys(["Name the light.", *kept, *lines]))
        return f"```instruction\n{rules}\n```"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    rows = ["photo,expected"]
    for number in range(45):
        (tmp_path / "photos" / name_of(number)).write_bytes(photo_of(number))
        rows.append(f"photos/{name_of(number)},{[*LIGHTS][number % 3]}")
    (tmp_path / "cases.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "light.md").write_text(PROMPT)
    return tmp_path


def run_in(folder: Path) -> Path:
    [run] = (folder / "runs").iterdir()
    return run


def test_an_image_travels_through_a_run_that_is_killed_and_resumed(
    project: Path, programs: Programs
) -> None:
    brain = Brain()
    server = LoopbackServer(OpenAIChat(), brain=brain, models=[MODEL])
    with server:
        settings = PROJECT.replace("ADDRESS", server.base_url)
        (project / "promptgraft.yaml").write_text(settings)
        running: dict[str, Any] = {"folder": project, "environment": {"LIGHT_KEY": KEY}}
        with programs.started("-m", "promptgraft", "optimize", **running) as process:

            def kill(number: int) -> None:
                if number == 40:
                    process.send_signal(signal.SIGKILL)

            brain.before_answer = kill
            assert process.wait() == -signal.SIGKILL
        run = run_in(project)
        answered = len(server.asked)
        brain.before_answer = lambda _: None
        resumed = programs.promptgraft("resume", run.name, **running)
        assert resumed.returncode == 0, resumed.stderr
        asked = len(server.asked)
        assert asked > answered

    result = json.loads((run / "result.json").read_text("utf-8"))
    assert result["improved"] is True, resumed.stdout
    assert all(brain.shown.get(role) for role in ("task", "judge", "reflection")), brain.shown
    # The bytes are kept once, each under its digest, and nowhere else.
    kept = sorted(path.read_bytes() for path in (run / "files").iterdir())
    assert kept == sorted(photo_of(number) for number in range(45))
    written = [path for path in run.rglob("*") if path.is_file() and path.parent != run / "files"]
    for path in written:
        content = path.read_bytes()
        if path.name != "report.html":
            assert b"iVBORw0KGgo" not in content, path
            assert b"\x89PNG" not in content, path
    page = (run / "report.html").read_text("utf-8")
    shown = re.findall(r'<img class="thumbnail" alt="(\[image [^"]*\])"[^>]* src="([^"]*)">', page)
    assert {base64.b64decode(address.partition(",")[2]) for _, address in shown} <= {*LABELS}
    assert len({name for name, _ in shown}) >= 10
    journal = (run / "journal.jsonl").read_text("utf-8")
    assert re.search(r"\[image \d\d\.png [0-9a-f]{16}\]", journal)
    questions = [path.read_text("utf-8") for path in (run / "questions").iterdir()]
    assert all(re.search(r"\[image \d\d\.png [0-9a-f]{16}\]", text) for text in questions)

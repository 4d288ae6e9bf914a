"""Runs the commands of ``with-a-real-model.md`` and fills in what they print: ``make real-model``.

A local server takes the place of a provider. It speaks OpenAI's protocol; what it says is what the
embedded offline model would say, so that the outputs can be made again, without a key.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from promptgraft.adapters.offline.learner import learn
from promptgraft.adapters.offline.reflector import reflect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from servers.behaviour import Answer, Asked  # noqa: E402 - in the folder above
from servers.loopback import KEY, LoopbackServer  # noqa: E402
from servers.openai_chat import OpenAIChat  # noqa: E402

PAGE = Path(__file__).with_name("with-a-real-model.md")
PROGRAM = str(Path(sys.executable).with_name("promptgraft"))
CHOICES = ("roads", "lighting", "waste", "parks", "water", "noise")
MODEL = "my-model"
BLOCK = re.compile(
    r"(```sh no-run\n\$ (?P<command>promptgraft [^\n]+)\n```\n\n```text\n).*?(```\n)", re.DOTALL
)
VARYING = (
    (re.compile(r"\d{8}-\d{6}-triage"), "20260131-120000-triage"),
    (re.compile(r"(revision \d+ \(|revision )[0-9a-f]{12}\b"), r"\g<1>56116472b98f"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:8000"),
    (re.compile(r" in \d[\d.]* s\b"), " in 4 s"),
    (re.compile(r"(?m)^  \S+/promptgraft "), "  promptgraft "),
    (re.compile(r"\s{2,}\d+\.\d+(?=  my-model)"), "      4.0"),
)
"""What differs from run to run, and what the page has in its place."""


def answer(asked: Asked) -> Answer:
    """Answer as the embedded offline model: a question to the reflection model, or a report."""
    text = "\n\n".join(asked.texts)
    if "## Current text" in text:
        key = "reflect-prompt" if "**P1:**" in text else "reflect-section"
        return Answer(text=reflect(key, text))
    instruction, _, report = text.partition("## Report")
    scores = learn(instruction, CHOICES).scores(report)
    return Answer(text=CHOICES[scores.index(max(scores))])


class Promptgraft(Protocol):
    """Runs a command of promptgraft in a folder, with some environment variables."""

    def __call__(
        self, *words: str, folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]: ...


def _in_a_process(
    *words: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def page_of_a_run(page: str, promptgraft: Promptgraft = _in_a_process) -> str:
    """Return the page with the outputs of its commands.

    Args:
        page: its text.
        promptgraft: runs a command.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackServer(OpenAIChat(), brain=answer, models=(MODEL,)) as server,
    ):
        project = Path(folder) / "mine"
        promptgraft("init", "mine", folder=Path(folder), environment={}).check_returncode()
        file = project / "promptgraft.yaml"
        model = re.search(r"(?s)```yaml[^\n]*\n(models:.*?)```", page)
        assert model is not None
        settings = model[1].replace("http://127.0.0.1:8000/v1", server.base_url)
        text = re.sub(
            r"(?ms)^models:\n.*?(?=^optimizer:)", f"{settings}\n", file.read_text("utf-8")
        )
        text = text.replace("rollout_budget: 1500", "rollout_budget: 400")
        file.write_text(text.replace("workers: 1", "workers: 4"), "utf-8")
        environment = {"MY_KEY": KEY, "COLUMNS": "100"}

        def filled(block: re.Match[str]) -> str:
            command = block["command"].split()[1:]
            ended = promptgraft(*command, folder=project, environment=environment)
            shown = ended.stdout or ended.stderr
            shown = shown.replace(f"{project}/", "")
            for pattern, fixed in VARYING:
                shown = pattern.sub(fixed, shown)
            return f"{block[1]}{shown}{block[3]}"

        return BLOCK.sub(filled, page)


if __name__ == "__main__":
    PAGE.write_text(page_of_a_run(PAGE.read_text("utf-8")), "utf-8")

"""Plans against bills: what a run was expected to cost, and what local servers charge for it.

Usage: ``python benchmarks/plans.py [SETTING ...]``. Each setting is a project of its own. It is
planned, planned with a probe of four calls, and run; the server bills each answer by its own rule,
at the prices of the project: tokens sent, read from a cache, written to it, and received with
thoughts; in batches half. Ends with 1 if a plan is not within a factor of two of the bill.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import functools
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from cli.priced_projects import SHAPES, TEAMS, Shape, prose  # noqa: E402
from image_files import png  # noqa: E402
from promptgraft.ground.serde import canonical_json  # noqa: E402
from servers.batches import BatchServer  # noqa: E402
from servers.behaviour import Answer, Asked, Brain, JsonObject  # noqa: E402
from servers.loopback import KEY, LoopbackServer  # noqa: E402
from servers.openai_responses import OpenAIResponses  # noqa: E402
from servers.provider import Tokens, some_tokens  # noqa: E402

SMALL, LARGE = "gpt-5.4-mini", "gpt-5.4"
# US dollars for a million tokens: input, read from the cache, output.
PRICES = {SMALL: (0.75, 0.075, 4.5), LARGE: (2.5, 0.25, 15.0)}
# Tokens for a patch of 32 x 32 pixels of an image, of which there are at most 1,536.
IMAGE_RATES = {SMALL: 1.62, LARGE: 1.2}
SIZES = ((640, 480), (1_024, 768), (1_200, 1_600), (400, 900))
PROBE = 4
CALM: Mapping[str, Any] = {"effort": "none"}


class Biller(OpenAIResponses):
    """OpenAI's Responses, with a bill of what was answered.

    ``in_batches`` is for a server with batches, which does not count tokens itself.
    """

    def __init__(self, *, in_batches: bool) -> None:
        super().__init__()
        self._counts_itself = in_batches
        self._lines: dict[tuple[int, str], float] = {}

    @property
    def dollars(self) -> float:
        """The bill so far."""
        return sum(self._lines.values())

    def answer_body(self, asked: Asked, answer: Answer, tokens: Tokens) -> JsonObject:
        if self._counts_itself:
            sent, received = some_tokens(canonical_json(asked.body)), some_tokens(answer.text)
            tokens = Tokens(sent=sent, received=received)
        price, cached, output = PRICES[asked.model]
        fresh = tokens.sent - tokens.cached
        dollars = (fresh * price + tokens.cached * cached + tokens.received * output) / 1_000_000
        # Requests in batches come without headers, and may be looked at more than once.
        in_batch = not asked.headers
        line = (-1 if in_batch else asked.number, canonical_json(asked.body))
        self._lines[line] = dollars / 2 if in_batch else dollars
        return super().answer_body(asked, answer, tokens)


@attrs.frozen(kw_only=True)
class Setting:
    """A project to plan and to run.

    Attributes:
        shape: the project.
        task: further options of the task model.
        thinks: whether the models think, in the reflection too.
        more: changes the project file, and writes what belongs to it into the folder.
        brain: what answers; None for that of the shape.
        in_batches: whether the server has batches.
    """

    shape: Shape
    task: Mapping[str, Any] = CALM
    thinks: bool = False
    more: Callable[[dict[str, Any], Path], None] | None = None
    brain: Brain | None = None
    in_batches: bool = False


AGENT = """
import json
from decimal import Decimal
from promptgraft import AgentAnswer, AgentCall, Usage

def answer(query: str, call: AgentCall) -> AgentAnswer:
    sent = 900 + len(query) // 4 + sum(map(len, call.texts.values())) // 4
    received = 120 + len(query) % 50
    cost = Decimal(sent * 75 + received * 450) / 100_000_000
    with open("bill.jsonl", "a") as file:
        file.write(f"{cost}\\n")
    teams = ("billing", "delivery", "returns", "account", "complaints")
    return AgentAnswer(
        text=teams[len(query) % 5],
        usage=Usage(input_tokens=sent, output_tokens=received),
        cost=cost,
    )
"""

GRAPH = """
from typing import Any, Literal

import attrs

from promptgraft import MarkdownSection, PromptTemplate
from promptgraft.graphs import Graph, Node, Run

TEAMS = Literal["billing", "delivery", "returns", "account", "complaints"]


@attrs.frozen
class Mail:
    text: str


def template(key: str, task: str, answer: Any) -> PromptTemplate[Any]:
    return PromptTemplate(
        ns="shop",
        key=key,
        output_type=answer,
        sections=[
            MarkdownSection(title="Task", key="task", template=task, overridable=False),
            MarkdownSection(title="Rules", key="rules", template="Read all of it."),
            MarkdownSection(title="Mail", key="mail", template="$text", overridable=False),
        ],
    )


def flow(run: Run, mail: str) -> str:
    return str(run.ask("team", Mail(run.ask("summary", Mail(mail)))))


GRAPH = Graph(
    "shop/mails",
    flow=flow,
    nodes=[
        Node("summary", template("summary", "Sum the mail up in a few sentences.", str)),
        Node("team", template("team", "Name the team that has to answer.", TEAMS)),
    ],
    edges=[("summary", "team")],
)
"""


def _as_agent(project: dict[str, Any], folder: Path) -> None:
    del folder
    project["prompts"] = {"desk": {"files": {"main": "main.md"}}}
    project["agent"] = {"python": "agent.py:answer"}
    project["workers"] = 1  # the bill is a file
    del project["models"]["task"]


def _as_graph(project: dict[str, Any], folder: Path) -> None:
    del folder, project["prompts"]
    project["graphs"] = {"mails": "agent.py:GRAPH"}


def _with_images(project: dict[str, Any], folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "cases.jsonl").read_text("utf-8").splitlines()]
    (folder / "photos").mkdir()
    with (folder / "cases.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("id", "text", "photo", "team"))
        for number, row in enumerate(rows):
            photo = f"photos/{row['id']}.png"
            colour = (number, 90, 90)
            (folder / photo).write_bytes(png(*SIZES[number % len(SIZES)], colour=colour))
            table.writerow((row["id"], row["input"], photo, row["expected"]))
    project["dataset"] = {"path": "cases.csv", "fields": {"expected": "team"}, "images": ["photo"]}


_PNG = re.compile(r'"data:image/png;base64,([^"]+)"')


def _seeing_brain(shape: Shape) -> Brain:
    """Count the tokens of images by their size, as the provider does, and not by their bytes."""
    usual = shape.brain()

    def brain(asked: Asked) -> Answer:
        body = canonical_json(asked.body)
        tokens = some_tokens(_PNG.sub('""', body))
        for photo in _PNG.findall(body):
            width, height = struct.unpack(">II", base64.b64decode(photo)[16:24])
            patches = math.ceil(width / 32) * math.ceil(height / 32)
            tokens += math.ceil(IMAGE_RATES[asked.model] * min(1_536, patches))
        return attrs.evolve(usual(asked), input_tokens=tokens)

    return brain


def _graph_brain(shape: Shape) -> Brain:
    usual = shape.brain()

    def brain(asked: Asked) -> Answer:
        text = "\n".join(asked.texts)
        if "```instruction (use more backticks" in text:
            return usual(asked)
        draw = random.Random(text)
        if asked.schema is None:
            return Answer(text=prose(text, draw.randint(220, 420)))
        return Answer(text=json.dumps({"answer": draw.choice(TEAMS)}))

    return brain


def _shape(name: str, **changes: Any) -> Shape:
    shape = SHAPES[name]
    optimizer = {**shape.optimizer, "rollout_budget": 90}
    sizes: dict[str, Any] = {"cases": 36, "optimizer": optimizer, "task": f"openai {SMALL}"}
    return attrs.evolve(shape, **(sizes | changes))


_LABELS = _shape("labels", reflection=f"openai {LARGE}")
_PLAIN = attrs.evolve(_LABELS, optimizer={"rollout_budget": 90})
_GRAPH = attrs.evolve(_PLAIN, asked=700, files={"agent.py": GRAPH})
_JUDGED = _shape(
    "replies with a judge",
    reflection=f"openai {LARGE}",
    judges={"strict": f"openai {LARGE}"},
)
_PHOTOS = attrs.evolve(_LABELS, prompt=f"{_LABELS.prompt}\n# Photo {{.frozen}}\n\n$photo\n")
_TOOLS = _shape("a tool", reflection=f"openai {LARGE}")
_POLICY = _shape(
    "labels by a long policy",
    reflection=f"openai {SMALL}",
    # With fewer calls the bill depends on whether a winner is left to be tested.
    optimizer={**SHAPES["labels by a long policy"].optimizer, "rollout_budget": 120},
    prompt=SHAPES["labels by a long policy"].prompt.replace(
        "# Rules", f"# History {{.frozen}}\n\n{prose('history', 5_000)}\n\n# Rules"
    ),
)
SETTINGS: Mapping[str, Setting] = {
    "without reasoning": Setting(shape=_LABELS),
    "with reasoning": Setting(shape=attrs.evolve(_LABELS, thinks=420), task={}, thinks=True),
    "a judge": Setting(shape=_JUDGED),
    "tools": Setting(shape=_TOOLS),
    "a graph": Setting(shape=_GRAPH, more=_as_graph, brain=_graph_brain(_GRAPH)),
    "an agent with usage": Setting(
        shape=attrs.evolve(_PLAIN, prompt="Say which team answers.\n", files={"agent.py": AGENT}),
        more=_as_agent,
    ),
    "batches": Setting(
        shape=_LABELS, task={**CALM, "mode": "batch", "batch_poll": 0.02}, in_batches=True
    ),
    "cached prompts": Setting(shape=_POLICY),
    "images": Setting(shape=_PHOTOS, more=_with_images, brain=_seeing_brain(_PHOTOS)),
}


@attrs.frozen(kw_only=True)
class Figures:
    """The dollars of a setting; None where they are unknown."""

    setting: str
    planned: float | None
    probed: float | None
    bill: float

    @property
    def is_near(self) -> bool:
        """Whether plan and probe, as far as they are known, are near the bill."""
        known = [value for value in (self.planned, self.probed) if value is not None]
        return bool(known) and all(self.bill / 2 <= value <= self.bill * 2 for value in known)

    def line(self) -> str:
        """Return a line of the table."""
        cells = [f"{self.setting:<22}"]
        for value in (self.planned, self.probed):
            shown = "—" if value is None else f"${value:.4f}"
            factor = "" if value is None else f"x{value / self.bill:.2f}"
            cells.append(f"{shown:>9} {factor:>6}")
        return "  ".join([*cells, f"${self.bill:.4f}", "" if self.is_near else "TOO FAR"]).rstrip()


class Promptgraft(Protocol):
    """Runs a command of promptgraft in a folder, with some environment variables."""

    def __call__(
        self, *words: str, folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]: ...


def _in_a_process(
    *words: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "promptgraft", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


HEAD = f"{'setting':<22}  {'plan':>9} {'':>6}  {'probe':>9} {'':>6}  bill"


def measured(name: str, promptgraft: Promptgraft = _in_a_process) -> Figures:
    """Plan, probe and run a setting.

    Args:
        name: of the setting.
        promptgraft: runs a command.
    """
    setting = SETTINGS[name]
    with tempfile.TemporaryDirectory() as place, _serving(setting) as (address, biller):
        folder = Path(place)
        write(setting, folder, address)
        command = functools.partial(_command, promptgraft, folder)
        planned = _dollars(command("plan", "--json")["expected"])
        probed, paid = None, 0.0
        if not setting.in_batches:
            document = command("plan", "--probe", str(PROBE), "--json")
            probed, paid = _dollars(document["expected"]), _bill(folder, biller)
        command("optimize", "--json", "-q")
        return Figures(
            setting=name, planned=planned, probed=probed, bill=_bill(folder, biller) - paid
        )


def write(setting: Setting, folder: Path, address: str) -> None:
    """Write the project of a setting."""
    setting.shape.write(folder, {"openai": address, "anthropic": address})
    path = folder / "promptgraft.yaml"
    project: dict[str, Any] = json.loads(path.read_text("utf-8"))
    models = project["models"]
    for role, model in (*models.items(), *models.get("judges", {}).items()):
        if role == "judges":
            continue
        price, cached, output = PRICES[model["model"]]
        model |= {
            "api": "responses",
            "prices": {"input": price, "cached_input": cached, "output": output},
            **(setting.task if role == "task" else {} if setting.thinks else CALM),
        }
    if setting.more is not None:
        setting.more(project, folder)
    path.write_text(json.dumps(project), "utf-8")


@contextlib.contextmanager
def _serving(setting: Setting) -> Iterator[tuple[str, Biller]]:
    biller = Biller(in_batches=setting.in_batches)
    brain = setting.brain or setting.shape.brain()
    if setting.in_batches:
        batches = BatchServer("responses", brain)
        batches.provider = biller
        with batches:
            yield batches.base_url, biller
        return
    server = LoopbackServer(
        biller, brain=brain, models=tuple(PRICES), caching=True, cached_from=1_024
    )
    with server:
        yield server.base_url, biller


def _bill(folder: Path, biller: Biller) -> float:
    """Return what server and agent have charged so far."""
    lines = folder / "bill.jsonl"
    agent = lines.read_text("utf-8").split() if lines.exists() else ()
    return biller.dollars + sum(map(float, agent))


def _dollars(expected: Mapping[str, Any]) -> float | None:
    return None if expected["cost"] is None else float(expected["cost"])


def _command(promptgraft: Promptgraft, folder: Path, *arguments: str) -> Any:
    """Run a command and return the document that it ends with."""
    ran = promptgraft(*arguments, folder=folder, environment={"LOOPBACK_KEY": KEY})
    if ran.returncode not in {0, 1}:
        raise RuntimeError(f"`{' '.join(arguments)}` ended with {ran.returncode}: {ran.stderr}")
    return json.loads(ran.stdout if arguments[0] == "plan" else ran.stdout.splitlines()[-1])


def main(names: Sequence[str]) -> int:
    """Print the table of some settings, or of all."""
    print(HEAD)
    far = 0
    for name in names or SETTINGS:
        figures = measured(name)
        far += not figures.is_near
        print(figures.line(), flush=True)
    return min(far, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

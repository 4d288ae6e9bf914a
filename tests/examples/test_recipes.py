"""Recipes for agents of real packages, run as users run them against a server on this machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from programs import OPENAI, Programs, forked_programs
from servers.behaviour import Answer, Asked
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
TWO_RUNS = Path(__file__).with_name("two_runs.py")
PACKAGES = {
    "openai_function": "openai",
    "langgraph_agent": "langgraph",
    "pydantic_ai_agent": "pydantic-ai-slim",
    "openai_agents": "openai-agents",
    "pydantic_ai_graph": "pydantic-ai-slim",
    "openai_agents_graph": "openai-agents",
    "http_service": "starlette",
    "command_line": "openai",
}
TEAMS = {
    "waste": "bin sack litter",
    "lighting": "lamp bulb lantern",
    "roads": "pothole kerb asphalt",
}
READER = "Note what is reported."
TAUGHT = "Reply with one word: waste, lighting or roads."


def brain(asked: Asked) -> Answer:
    """Answer in one word once the text asks for it; as a reflection model, ask for it."""
    text = "\n".join(asked.texts)
    if "The part is:" in text:
        current = re.findall(r"```\w*\n(.*?)\n```", text.partition("The part is:")[2], re.DOTALL)
        return Answer(text=f"```instruction\n{current[0]}\n{TAUGHT}\n```")
    if READER in text:
        return Answer(text=asked.texts[-1])
    said = set(re.findall(r"\w+", asked.texts[-1]))
    [team] = [name for name, words in TEAMS.items() if said & set(words.split())]
    return Answer(text=team if TAUGHT in text else f"I would say it is {team}.")


LIGHT = ("openai_function", "http_service", "command_line")
"""Recipes that import no framework: tests/integrations has others for those."""
EACH = [
    pytest.param(name, marks=[] if name in LIGHT else pytest.mark.thorough) for name in PACKAGES
]


@pytest.fixture(scope="module")
def with_frameworks() -> Iterator[Programs]:
    """What the recipes import takes longer than they do, so it is imported once for all."""
    with forked_programs(
        *OPENAI,
        "langgraph.graph",
        "pydantic_ai.models.openai",
        "pydantic_ai.providers.openai",
        "agents",
    ) as made:
        yield made


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with LoopbackServer(OpenAIChat(), brain=brain) as server:
        own = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY, "AGENT_MODEL": MODEL}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        yield {**os.environ, **own, "PATH": path}


def copied(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "runs", ".promptgraft")
    return shutil.copytree(RECIPES, folder / "recipes", ignore=ignored)


@contextlib.contextmanager
def serving(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run the service of a recipe on a free port, which its project is told."""
    listening = socket.create_server(("127.0.0.1", 0))
    project = folder / "http_service.yaml"
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    project.write_text(project.read_text("utf-8").replace("127.0.0.1:8000", address), "utf-8")
    spec = importlib.util.spec_from_file_location("http_service", folder / "http_service.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = uvicorn.Server(uvicorn.Config(module.app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "AGENT_MODEL"):
            patch.setenv(name, environment[name])
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def needs(recipe: str) -> None:
    package = PACKAGES[recipe]
    try:
        importlib.metadata.distribution(package)  # not an import: its modules have common names
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: `pip install --group recipes`")


@pytest.mark.parametrize("recipe", EACH)
def test_a_recipe_finds_a_better_text(
    recipe: str, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    needs(recipe)
    programs = request.getfixturevalue("programs" if recipe in LIGHT else "with_frameworks")
    folder = copied(tmp_path)
    project = folder / f"{recipe}.yaml"
    # The server knows the question on one text only.
    text = project.read_text("utf-8").replace(
        "minibatch_size: 3", "minibatch_size: 3, additions: [blame]"
    )
    # One proposal is enough.
    project.write_text(re.sub("rollout_budget: [68]0", "rollout_budget: 30", text), "utf-8")
    reports = folder / "data" / "reports.jsonl"
    lines = reports.read_text("utf-8").splitlines(keepends=True)
    reports.write_text("".join(lines[::2]), "utf-8")
    with serving(folder, environment) if recipe == "http_service" else contextlib.nullcontext():
        command = ("optimize", "--project", f"{recipe}.yaml")
        done = programs.promptgraft(*command, folder=folder, environment=environment)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [result] = folder.glob("runs/*/result.json")
    found = json.loads(result.read_text("utf-8"))
    means = found["scores"]["pareto"]
    assert (means["baseline"], means["best"]) == (0.0, 1.0), done.stdout + done.stderr
    [run] = folder.glob("runs/*")
    best = {path.stem: path.read_text("utf-8") for path in (run / "best_prompts").iterdir()}
    assert any(TAUGHT in text for text in best.values())
    # What the agent reads itself is as it was.
    assert TAUGHT not in "".join(
        path.read_text("utf-8") for path in folder.rglob("*.md") if "runs" not in path.parts
    )


@pytest.mark.parametrize("recipe", PACKAGES)
def test_a_recipe_is_short(recipe: str) -> None:
    lines = (RECIPES / f"{recipe}.py").read_text("utf-8").splitlines()
    assert len(lines) <= (40 if recipe.endswith("_graph") else 60)


@pytest.mark.thorough
@pytest.mark.parametrize("recipe", [name for name in PACKAGES if name.endswith("_graph")])
def test_two_runs_in_one_process_never_see_each_other_s_texts(
    recipe: str, with_frameworks: Programs
) -> None:
    needs(recipe)
    seen: list[tuple[str, ...]] = []

    def echo(asked: Asked) -> Answer:
        seen.append(tuple(asked.texts))
        return Answer(text=asked.texts[-1])

    names = ("alpha", "beta")
    with LoopbackServer(OpenAIChat(), brain=echo) as server:
        own = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY, "AGENT_MODEL": MODEL}
        done = with_frameworks(TWO_RUNS, RECIPES / f"{recipe}.py", *names, environment=own)
    assert done.returncode == 0, done.stderr
    for texts in seen:
        assert sum(name in " ".join(texts) for name in names) == 1
    for name in names:
        assert any(f"Say {name}" in texts[0] and f"{name}!" in texts[-1] for texts in seen)

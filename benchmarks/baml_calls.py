"""What promptgraft adds to BAML: calls, candidates, and how well threads are used.

The model is a server on loopback, in a process of its own. A rollout is asked and judged by an
assert; what BAML takes for the same call is taken off. Calls alternate, and the fastest tenth of
each counts, so that what else the machine does has little part in it.

    .venv/bin/python benchmarks/baml_calls.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from figures import Figure
from promptgraft.agents.call import AgentCall
from promptgraft.baml.agent import BamlAgent
from promptgraft.baml.functions import load_function
from promptgraft.baml.runtime import Compiled

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from servers.loopback import KEY, MODEL  # noqa: E402

TITLE = "BAML: a server on loopback"
CALLS, WARM_UP = 300, 200
THREADS, SECONDS = 16, 0.05
FUNCTIONS = 400
CLIENT = """client<llm> Loopback {
  provider openai-generic
  options {
    base_url env.BAML_BENCHMARK
    model "MODEL"
    api_key "KEY"
  }
}
"""
FUNCTION = """class Sum%(n)s {
  total int @description("All together")
  words string
}
function Add%(n)s(text: string) -> Sum%(n)s {
  client Loopback
  prompt #"
    Add up. {{ text }}
    {{ ctx.output_format }}
  "#
}
test Case%(n)s {
  functions [Add%(n)s]
  args { text "1 and 2" }
  @@assert({{ this.total == 3 }})
}
"""


@contextmanager
def served(seconds: float) -> Iterator[None]:
    """Have a model answer after some seconds, while the context lasts."""
    answer = '{"total": 3, "words": "three"}'
    command = [sys.executable, "-m", "servers", "openai", answer, "nowhere", str(seconds)]
    with subprocess.Popen(
        command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        os.environ["BAML_BENCHMARK"] = server.stdout.readline().strip()
        yield
        server.communicate()


def agent_in(folder: Path) -> BamlAgent:
    """Return a function of a project of many."""
    source = "".join(
        [
            CLIENT.replace("KEY", KEY).replace("MODEL", MODEL),
            *(FUNCTION % {"n": n} for n in range(FUNCTIONS)),
        ]
    )
    (folder / "all.baml").write_text(source, encoding="utf-8")
    function = load_function("Add7", folder)
    return BamlAgent(function=function, tests={one.name: one for one in function.tests})


def call_of(agent: BamlAgent, prompt: str = "") -> AgentCall:
    """Return the call of its test, with another prompt if one is given."""
    texts = {part.key: part.text for part in agent.function.parts}
    if prompt:
        texts["prompt"] = f"{texts['prompt']} {prompt}"
    return AgentCall(texts=texts, example="Case7")


def of_calls(agent: BamlAgent) -> float:
    """Return the seconds that a rollout takes above BAML's own call."""
    call, environment = call_of(agent), dict(os.environ)
    runtime = Compiled.of(agent.function.sources({}), folder=agent.function.folder).runtime
    ours, theirs = [], []
    for _ in range(CALLS):
        began = time.perf_counter()
        agent.ask("", call)
        between = time.perf_counter()
        context = runtime.create_context_manager()
        runtime.call_function_sync(
            "Add7", {"text": "1 and 2"}, context, None, None, [], environment, None
        )
        theirs.append(time.perf_counter() - between)
        ours.append(between - began)
    return sorted(ours)[CALLS // 10] - sorted(theirs)[CALLS // 10]


def of_candidates(agent: BamlAgent) -> float:
    """Return the seconds until BAML has compiled a candidate."""
    times = []
    for n in range(CALLS):
        texts = call_of(agent, f"again {n}").texts
        began = time.perf_counter()
        Compiled.of(agent.function.sources(texts), folder=agent.function.folder)
        times.append(time.perf_counter() - began)
    return sorted(times)[CALLS // 10]


def of_threads(agent: BamlAgent) -> float:
    """Return the share of their time that threads do not wait for answers, in the best of 3."""
    call = call_of(agent)
    calls = 20 * THREADS
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: agent.ask("", call), range(WARM_UP)))
        times = []
        for _ in range(3):
            began = time.perf_counter()
            list(pool.map(lambda _: agent.ask("", call), range(calls)))
            times.append(time.perf_counter() - began)
    return 1 - SECONDS * calls / THREADS / min(times)


def measure() -> list[Figure]:
    """Return what calls and candidates take more, and how much time of threads is lost."""
    with tempfile.TemporaryDirectory() as folder:
        agent = agent_in(Path(folder))
        with served(0):
            calls = 1000 * of_calls(agent)
            candidates = 1000 * of_candidates(agent)
        with served(SECONDS):
            lost = 100 * of_threads(agent)
    return [
        Figure("a call with one assert", calls, "ms", limit=1.5),
        Figure(f"a candidate in a project of {FUNCTIONS} functions", candidates, "ms", limit=5),
        Figure(f"{THREADS} threads and {1000 * SECONDS:.0f} ms: time lost", lost, "%", limit=20),
    ]


if __name__ == "__main__":
    print(TITLE)
    for figure in measure():
        print(figure.line())

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from figures import Figure
from promptgraft.agents.call import AgentCall
from promptgraft.bridges.baml.agent import BamlAgent
from promptgraft.bridges.baml.functions import load_function
from promptgraft.bridges.baml.runtime import CompiledProject

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from servers.loopback import KEY, MODEL  # noqa: E402

TITLE = "BAML: a server on loopback"
CALLS, WARM_UP = 300, 200
THREADS, SECONDS, EACH = 16, 0.05, 20
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


def own_call(agent: BamlAgent) -> Callable[[], object]:
    """Return BAML's own call of the same function."""
    runtime = CompiledProject.of(agent.function.sources({}), folder=agent.function.folder).runtime
    environment, args = dict(os.environ), {"text": "1 and 2"}

    def call() -> object:
        context = runtime.create_context_manager()
        return runtime.call_function_sync("Add7", args, context, None, None, [], environment, None)

    return call


def of_calls(agent: BamlAgent) -> float:
    """Return the seconds that a rollout takes above BAML's own call."""
    call, of_baml = call_of(agent), own_call(agent)
    ours, theirs = [], []
    for _ in range(CALLS):
        began = time.perf_counter()
        agent.ask("", call)
        between = time.perf_counter()
        of_baml()
        theirs.append(time.perf_counter() - between)
        ours.append(between - began)
    return sorted(ours)[CALLS // 10] - sorted(theirs)[CALLS // 10]


def of_candidates(agent: BamlAgent) -> float:
    """Return the seconds until BAML has compiled a candidate."""
    times = []
    for n in range(CALLS):
        texts = call_of(agent, f"again {n}").texts
        began = time.perf_counter()
        CompiledProject.of(agent.function.sources(texts), folder=agent.function.folder)
        times.append(time.perf_counter() - began)
    return sorted(times)[CALLS // 10]


def of_threads(*calls: Callable[[], object]) -> list[float]:
    """Return the shares of their time that threads do not wait for answers, in the best of 5."""
    times: list[list[float]] = [[] for _ in calls]
    with ThreadPoolExecutor(THREADS) as pool:
        for call in calls:
            list(pool.map(lambda _, call=call: call(), range(WARM_UP)))
        for _, (call, taken) in product(range(5), zip(calls, times, strict=True)):
            began = time.perf_counter()
            list(pool.map(lambda _, call=call: call(), range(EACH * THREADS)))
            taken.append(time.perf_counter() - began)
    return [1 - SECONDS * EACH / min(taken) for taken in times]


def measure() -> list[Figure]:
    """Return what calls and candidates take more, and how much time of threads is lost."""
    with tempfile.TemporaryDirectory() as folder:
        with served(0):
            agent = agent_in(Path(folder))
            calls = 1000 * of_calls(agent)
            candidates = 1000 * of_candidates(agent)
        with served(SECONDS):
            agent = agent_in(Path(folder))
            call = call_of(agent)
            theirs, ours = of_threads(own_call(agent), lambda: agent.ask("", call))
    threads = f"{THREADS} threads and {1000 * SECONDS:.0f} ms"
    return [
        Figure("a call with one assert", calls, "ms", limit=1.5),
        Figure(f"a candidate in a project of {FUNCTIONS} functions", candidates, "ms", limit=5),
        Figure(f"{threads}: BAML's own time lost", 100 * theirs, "%", limit=None),
        Figure(f"{threads}: time lost", 100 * ours, "%", limit=20),
    ]


if __name__ == "__main__":
    print(TITLE)
    for figure in measure():
        print(figure.line())

"""What promptgraft adds to a call of an agent: a function, a service on loopback, a command.

A rollout is answered, judged with one metric and made a record of. What the same call takes by
hand is taken off: the function called, the request sent with ``http.client``, the command started
with ``subprocess``. Calls alternate, and the fastest tenth of each counts, so that what else the
machine does has little part in it.

    .venv/bin/python benchmarks/agents.py
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from figures import Figure
from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    CommandAgent,
    GepaConfig,
    HttpAgent,
    OfflineAdapter,
    OptimizationContext,
    examples_from,
    feedback_from,
)
from promptgraft.evals import metrics
from promptgraft.ground.serde import Json
from promptgraft.runtime.session import Watch
from promptgraft.search.targets import target_for, targeted

TITLE = "Agents: what a rollout takes above a call by hand"
TEXTS = {"system": "Be brief. " * 100, "skill": "Count. " * 100}
COMMAND = ("cat", "/dev/null")


def answer(query: str, call: AgentCall) -> str:
    """Answer as an agent that takes no time."""
    return call.texts["system"][: len(query)]


def overhead(agent: Any, by_hand: Callable[[], object], rounds: int) -> float:
    """Return the seconds that a rollout takes above the call by hand."""
    box = BlackBox(TEXTS, agent=agent)
    cases = [Case(id=f"c{n}", input=f"how many? {n}", expected="x") for n in range(8)]
    judges = [metrics.exact()]
    examples = examples_from(box.prompt, cases, judges)
    config = targeted(
        GepaConfig(
            training_examples=examples,
            pareto_set_size=4,
            feedback_fn=feedback_from(judges),
            rollout_budget=100,
        ),
        box,
    )
    context = OptimizationContext(OfflineAdapter()).around(box)
    target = target_for(box, config, context, Watch())
    candidate = target.baseline()
    ours, theirs = [], []
    for number in range(rounds):
        example = examples[number % len(examples)].copy()
        began = time.perf_counter()
        target.rollout(candidate, example, None)
        between = time.perf_counter()
        by_hand()
        theirs.append(time.perf_counter() - between)
        ours.append(between - began)
    return sorted(ours)[rounds // 10] - sorted(theirs)[rounds // 10]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"text": "4"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def of_function() -> float:
    """Return the seconds for a function."""
    call = AgentCall(texts=TEXTS)
    return overhead(answer, lambda: answer("how many?", call), 2_000)


def of_service() -> float:
    """Return the seconds for a service on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port = server.server_address[1]
    body: dict[str, Json] = {"q": "{query}", "p": "{texts.system}"}

    def by_hand() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        sent = json.dumps({"q": "how many?", "p": TEXTS["system"]})
        connection.request("POST", "/", sent, {"Content-Type": "application/json"})
        json.loads(connection.getresponse().read())
        connection.close()

    try:
        agent = HttpAgent(url=f"http://127.0.0.1:{port}/", json=body, answer="$.text")
        return overhead(agent, by_hand, 500)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def of_command() -> float:
    """Return the seconds for a command."""
    agent = CommandAgent(command=("sh", "-c", "echo 4", "sh", "{query}", "{texts.system}"))
    command = ["sh", "-c", "echo 4", "sh", "how many?", TEXTS["system"]]

    def by_hand() -> None:
        subprocess.run(command, capture_output=True, check=True)

    return overhead(agent, by_hand, 200)


def measure() -> list[Figure]:
    """Return what each kind of agent takes more, in microseconds."""
    return [
        Figure("function", 1e6 * of_function(), "us", limit=300),
        Figure("service over HTTP", 1e6 * of_service(), "us", limit=1_500),
        Figure("command", 1e6 * of_command(), "us", limit=15_000),
    ]


if __name__ == "__main__":
    print(TITLE)
    for figure in measure():
        print(figure.line())

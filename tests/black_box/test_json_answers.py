"""Agents of every kind may answer with any JSON value, which metrics of texts and of JSON judge."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator

import pytest

from black_box.asking import TEXTS, asked
from black_box.service import Service, said, serving
from promptgraft import Agent, AgentAnswer, BlackBox, Case, CommandAgent, HttpAgent, evaluate
from promptgraft.agents.python import PythonAgent
from promptgraft.errors import AgentFaultError
from promptgraft.evals import metrics
from promptgraft.evals.types import Metric
from promptgraft.ground.serde import Json, canonical_json

Making = Callable[[Json], Agent]

VALUES: list[Json] = [0, 5, -2.5, 1e300, True, False, None, "", "a text", "null"]
VALUES += [[], [1, "b", None], {}, {"a": {"b": [True, 1.5]}}]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(lambda *_: said({})) as found:
        yield found


@pytest.fixture(params=["function", "async function", "service", "command"])
def make(request: pytest.FixtureRequest, service: Service) -> Making:
    """Return a function that makes an agent which answers with a value."""

    def function(value: Json) -> Agent:
        return PythonAgent(function=lambda query, call: value)

    def async_function(value: Json) -> Agent:
        async def call(query: str, call: object) -> Json:
            return value

        return PythonAgent(function=call)

    def http(value: Json) -> Agent:
        service.brain = lambda *_: said({"found": value})
        body: dict[str, Json] = {"q": "{query}", "p": "{texts.system}"}
        return HttpAgent(url=service.url, json=body, answer="$.found")

    def command(value: Json) -> Agent:
        script = f"echo {shlex.quote(json.dumps({'found': value}))}"
        arguments = ("sh", "-c", script, "agent", "{query}", "{texts.system}")
        return CommandAgent(command=arguments, answer="$.found")

    kinds: dict[str, Making] = {
        "function": function,
        "async function": async_function,
        "service": http,
        "command": command,
    }
    return kinds[request.param]


@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_every_value_is_an_answer(make: Making, value: Json) -> None:
    found = asked(make(value))
    assert found.text == (value if isinstance(value, str) else canonical_json(value))
    assert found.output == (None if isinstance(value, str) else value)


def right(value: Json, expected: Json, make: Making, metric: Metric) -> bool:
    desk = BlackBox(TEXTS, agent=make(value))
    case = Case(id="c", input="x", expected=expected)
    return evaluate(desk.prompt, [case], [metric], adapter=desk.adapter).score.mean == 1.0


@pytest.mark.parametrize("value", [0, 5, -2.5, True, False, "a text"], ids=json.dumps)
def test_exact_compares_values_and_texts_of_values(make: Making, value: Json) -> None:
    metric = metrics.exact()
    assert right(value, value, make, metric)
    assert right(value, canonical_json(value) if value != "a text" else value, make, metric)
    assert right(value, ["other", value], make, metric)
    assert not right(value, "other", make, metric)
    assert not right([value], value, make, metric)


@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_json_match_compares_every_value(make: Making, value: Json) -> None:
    metric = metrics.json_match()
    # A text is JSON in this metric, on both sides.
    text = json.dumps(value)
    assert right(text if isinstance(value, str) else value, text, make, metric)
    assert not right(text if isinstance(value, str) else value, "[1, 2, 3]", make, metric)


@pytest.mark.parametrize(
    "value", [b"text", {1: "x"}, float("nan"), [object()], AgentAnswer, {"a": float("inf")}]
)
def test_what_json_cannot_hold_is_a_fault_of_the_agent(value: object) -> None:
    with pytest.raises(AgentFaultError, match="an agent returns a value of JSON or an AgentAnswer"):
        asked(lambda query, call: value)

"""Cases of several turns: how they are played, judged, and shown."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from black_box.asking import TEXTS, asked
from promptgraft import (
    AgentAnswer,
    AgentCall,
    BlackBox,
    Case,
    Data,
    Dataset,
    GepaConfig,
    GepaExample,
    OptimizationContext,
    OptimizationJob,
    PromptResponse,
    ScriptedAdapter,
    Session,
    default_example_formatter,
    default_trace_formatter,
    evaluate,
    examples_from,
    feedback_from,
)
from promptgraft.errors import AgentFaultError, ConfigError
from promptgraft.evals import metrics
from promptgraft.evals.attempt import answer_of
from promptgraft.evals.types import Message, Speaker, ToolUse, Turn
from promptgraft.ground.serde import Json

TURNS = (
    Turn(user="Book a table", expected="For when?"),
    Turn(user="Friday", expected="Booked for Friday."),
)
BOOKING = Case(
    id="booking", input="Friday", expected="Booked for Friday.", turns=TURNS, state={"name": "Ann"}
)


def desk(query: str, call: AgentCall) -> str:
    """Remember what was said before in the history that it is given."""
    return f"Booked for {query}." if call.history else "For when?"


class Noting:
    def __init__(self) -> None:
        self.calls: list[tuple[str, AgentCall]] = []

    def __call__(self, query: str, call: AgentCall) -> str:
        self.calls.append((query, call))
        return desk(query, call)


def test_turns_are_played_in_order_in_one_session_with_history_and_state() -> None:
    agent = Noting()
    case = Case(**{**BOOKING_FIELDS, "context": (Message(Speaker.USER, "Hi"),)})
    assert asked(agent, case).text == "Booked for Friday."
    asked(agent, case)
    first, second, other, _ = (call for _, call in agent.calls)
    assert [query for query, _ in agent.calls[:2]] == ["Book a table", "Friday"]
    assert first.session_id == second.session_id != other.session_id
    assert [(call.turn, len(call.history)) for call in (first, second)] == [(0, 0), (1, 1)]
    assert (second.history[0].query, second.history[0].answer) == ("Book a table", "For when?")
    assert dict(first.state) == dict(second.state) == {"name": "Ann"}
    assert first.context == case.context


BOOKING_FIELDS: dict[str, Any] = {
    name: getattr(BOOKING, name) for name in ("id", "input", "expected", "turns", "state")
}


def test_sixteen_workers_never_mix_the_sessions_of_two_rollouts() -> None:
    agent = Noting()
    cases = [Case(**{**BOOKING_FIELDS, "id": f"c{n}"}) for n in range(50)]
    found = BlackBox(TEXTS, agent=agent)
    with ThreadPoolExecutor(16) as executor:
        result = evaluate(
            found.prompt, cases, [metrics.exact()], adapter=found.adapter, executor=executor
        )
    assert result.score.mean == 1.0
    turns = Counter((call.session_id, call.example) for _, call in agent.calls)
    assert set(turns.values()) == {2}
    assert len({session for session, _ in turns}) == 50


def judged(agent: Any, case: Case = BOOKING) -> Any:
    found = BlackBox(TEXTS, agent=agent)
    result = evaluate(found.prompt, [case], [metrics.exact()], adapter=found.adapter)
    return result.attempts[0].outcome


def test_each_turn_is_judged_and_the_case_has_their_mean() -> None:
    assert judged(desk).score == 1.0
    outcome = judged(lambda query, call: "For when?")
    [verdict] = outcome.verdicts
    assert (outcome.score, verdict.passed) == (0.5, False)
    lines = verdict.reason.splitlines()
    assert lines[0] == "1 of 2 turns pass"
    assert lines[1].startswith("turn 1 passed 1: ")
    assert lines[2].startswith('turn 2 failed 0: expected "Booked for Friday.", found "For when?"')


def test_few_turns_have_room_for_long_reasons() -> None:
    long = " ".join(f"word{number}" for number in range(100))
    metric = metrics.python(function=lambda case, answer: (0.0, long), name="long")
    for count, is_whole in ((2, True), (40, False)):
        case = Case(id="c", input="x", turns=(Turn(user="x"),) * count)
        found = BlackBox(TEXTS, agent=lambda query, call: "ok")
        [attempt] = evaluate(found.prompt, [case], [metric], adapter=found.adapter).attempts
        assert (long in attempt.outcome.verdicts[0].reason) == is_whole


def test_what_the_case_itself_expects_is_expected_of_the_last_turn() -> None:
    first, last = TURNS[0], Turn(user="Friday")
    several: list[Json] = ["Friday it is.", "Booked for Friday."]
    for expected in ("Booked for Friday.", several):
        case = attrs.evolve(BOOKING, turns=(first, last), expected=expected)
        assert judged(desk, case).score == 1.0
        assert judged(lambda query, call: "For when?", case).score == 0.5


def test_turns_that_all_pass_pass_together() -> None:
    # Of floats, the mean of three times 0.7 is below 0.7.
    turns = tuple(Turn(user=name) for name in "abc")
    metric = metrics.python(function=lambda case, answer: 0.7, name="fair", threshold=0.7)
    found = BlackBox(TEXTS, agent=lambda query, call: "ok")
    case = Case(id="c", input="c", turns=turns)
    [attempt] = evaluate(found.prompt, [case], [metric], adapter=found.adapter).attempts
    assert attempt.outcome.status == "passed"


def test_a_turn_without_what_a_metric_needs_is_left_out_by_it() -> None:
    turns = (Turn(user="Hello"), *TURNS)
    outcome = judged(
        lambda query, call: "hi" if query == "Hello" else desk(query, call),
        Case(**{**BOOKING_FIELDS, "turns": turns}),
    )
    assert outcome.score == 0.5  # what came before the first booking is a history too
    with pytest.raises(ConfigError, match="case `booking`: metric `exact`"):
        judged(desk, Case(id="booking", input="x", turns=(Turn(user="a"), Turn(user="b"))))


def test_tools_are_those_of_the_turn() -> None:
    turns = tuple(Turn(user=name, tools=(ToolUse(name=name),)) for name in ("look_up", "book"))
    case = Case(id="c", input="book", turns=turns)

    def agent(query: str, call: AgentCall) -> AgentAnswer:
        return AgentAnswer(text="ok", tools=(ToolUse(name=query),))

    found = BlackBox(TEXTS, agent=agent)
    result = evaluate(found.prompt, [case], [metrics.tool_trajectory()], adapter=found.adapter)
    assert result.score.mean == 1.0


def test_a_reflector_is_shown_what_the_user_says_each_answer_and_each_verdict() -> None:
    [example] = examples_from(BlackBox(TEXTS, agent=desk).prompt, [BOOKING], [metrics.exact()])
    session = Session()
    response = asked(lambda query, call: "For when?", BOOKING, session=session)
    inputs, output = default_example_formatter(example, response)
    assert json.loads(inputs) == {"input": ["Book a table", "Friday"], "state": {"name": "Ann"}}
    assert "Booked" not in inputs
    assert output == "For when?"
    assert default_trace_formatter(session).splitlines() == [
        "[turn 1]",
        "  user: Book a table",
        "  answer: For when?",
        "[turn 2]",
        "  user: Friday",
        "  answer: For when?",
    ]
    feedback = feedback_from([metrics.exact()])(example, response, session)
    assert feedback.score == 0.5
    assert "[failed] exact 0.5: 1 of 2 turns pass\n  turn 1 passed 1:" in feedback.feedback


def test_a_fault_in_the_middle_scores_zero_and_shows_what_came_before() -> None:
    def failing(query: str, call: AgentCall) -> str:
        if call.history:
            raise ValueError("no table")
        return "For when?"

    session = Session()
    with pytest.raises(AgentFaultError, match="the agent raised ValueError: no table"):
        asked(failing, BOOKING, session=session)
    assert default_trace_formatter(session).splitlines()[0] == "[turn 1]"
    assert judged(failing).score == 0.0


CAMEL: Json = {
    "evalSetId": "desk",
    "evalCases": [
        {
            "evalId": "booking",
            "conversation": [
                {
                    "userContent": {"role": "user", "parts": [{"text": str(turn.user)}]},
                    "finalResponse": {"role": "model", "parts": [{"text": turn.expected}]},
                }
                for turn in TURNS
            ],
            "sessionInput": {"appName": "a", "userId": "u", "state": {"name": "Ann"}},
        }
    ],
}
SNAKE: Json = {
    "eval_set_id": "desk",
    "eval_cases": [
        {
            "eval_id": "booking",
            "conversation": [
                {
                    "user_content": {"role": "user", "content": str(turn.user)},
                    "final_response": {"role": "assistant", "content": turn.expected},
                }
                for turn in TURNS
            ],
        },
        {
            "eval_id": "other",
            "conversation": [{"user_content": {"role": "user", "content": "x"}}],
        },
    ],
}


@pytest.mark.parametrize("dialect", [CAMEL, SNAKE])
def test_both_dialects_are_asked_as_they_are(dialect: Json, tmp_path: Path) -> None:
    file = tmp_path / "desk.evalset.json"
    file.write_text(json.dumps(dialect), "utf-8")
    [case, *_] = Dataset.load(file)
    assert judged(desk, case).score == 1.0


def test_a_path_may_pick_one_case_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "desk.evalset.json"
    file.write_text(json.dumps(SNAKE), "utf-8")
    assert [case.id for case in Dataset.load(f"{file}:booking")] == ["booking"]
    with pytest.raises(ConfigError, match=r"no case `bookin` \(did you mean `booking`\?\)"):
        Dataset.load(f"{file}:bookin")


def test_a_recorded_conversation_is_judged_turn_by_turn_without_a_call(tmp_path: Path) -> None:
    asked_turns: Any = SNAKE["eval_cases"][0]["conversation"]  # type: ignore[index,call-overload]
    recorded = [asked_turns[0], {**asked_turns[1], "final_response": {"content": "No."}}]
    case = {
        "eval_id": "old",
        "eval_mode": "trace",
        "conversation": asked_turns,
        "actual_conversation": recorded,
    }
    file = tmp_path / "old.evalset.json"
    file.write_text(json.dumps({"eval_set_id": "x", "eval_cases": [case]}), "utf-8")
    [found] = Dataset.load(file)

    def never(query: str, call: AgentCall) -> str:
        raise AssertionError("asked")

    outcome = judged(never, found)
    assert outcome.score == 0.5
    assert (
        'turn 2 failed 0: expected "Booked for Friday.", found "No."' in outcome.verdicts[0].reason
    )


def scenario(tmp_path: Path) -> Case:
    case = {
        "eval_id": "guest",
        "conversation_scenario": {
            "starting_prompt": "Book a table",
            "conversation_plan": "You want Friday.",
        },
    }
    file = tmp_path / "guest.evalset.json"
    file.write_text(json.dumps({"eval_set_id": "x", "eval_cases": [case]}), "utf-8")
    [found] = Dataset.load(file)
    return found


def user(*messages: str) -> tuple[ScriptedAdapter, list[str]]:
    """Return a model that says these messages as the user, and what it is shown each time."""
    shown: list[str] = []
    replies = iter(messages)

    def say(rendered: Any, *_: object) -> str:
        shown.append(rendered.text)
        return json.dumps({"message": next(replies)})

    return ScriptedAdapter(say, identity="guest"), shown


def test_a_simulated_user_talks_until_the_conversation_is_over(tmp_path: Path) -> None:
    model, shown = user("Friday", "")
    agent = Noting()
    session = Session()
    assert (
        asked(agent, scenario(tmp_path), user=model, session=session).text == "Booked for Friday."
    )
    assert [query for query, _ in agent.calls] == ["Book a table", "Friday"]
    assert "You want Friday." in shown[0]
    assert "User: Book a table\n\nAssistant: For when?" in shown[0]
    turns = answer_of(PromptResponse(text="x"), session).turns
    assert [turn.query for turn in turns] == ["Book a table", "Friday"]


@pytest.mark.parametrize("is_apart", [True, False])
def test_a_dry_run_asks_no_simulated_user(tmp_path: Path, is_apart: bool) -> None:
    model, shown = user()
    agent, judges = Noting(), [metrics.length(min=1)]
    box = BlackBox(TEXTS, agent=agent, user=model)
    cases = [attrs.evolve(scenario(tmp_path), id=f"g{n}", input=f"g{n}") for n in range(4)]
    config = GepaConfig(
        rollout_budget=20,
        minibatch_size=1,
        pareto_set_size=2,
        training_examples=examples_from(box.prompt, cases, judges),
        feedback_fn=feedback_from(judges),
        data=Data(held_out=()),
    )
    context = OptimizationContext(box.adapter if is_apart else None, reflection_adapter=model)
    result = OptimizationJob(box.prompt if is_apart else box, context, config).dry().run()
    assert result.baseline_pareto_mean == 1.0
    assert {query for query, _ in agent.calls} <= {case.input for case in cases}
    assert shown == []


def test_a_conversation_ends_at_its_most_turns_and_is_judged_where_it_ends(tmp_path: Path) -> None:
    model, shown = user(*"abcdefgh")
    agent = Noting()
    found = BlackBox(TEXTS, agent=agent, user=model, max_turns=3)
    seen: list[Case] = []

    def judge(case: Case, answer: Any) -> bool:
        seen.append(case)
        return bool(answer.text == "Booked for b.")

    result = evaluate(
        found.prompt,
        [scenario(tmp_path)],
        [metrics.python(function=judge)],
        adapter=found.adapter,
    )
    assert result.score.mean == 1.0
    assert (len(agent.calls), len(shown)) == (3, 2)
    assert seen[0].input == "b"
    assert [one.text for one in seen[0].context][:2] == ["Book a table", "For when?"]


def test_a_scenario_without_a_simulated_user_is_refused_before_the_first_call(
    tmp_path: Path,
) -> None:
    agent = Noting()
    found = BlackBox(TEXTS, agent=agent)
    said = metrics.python(function=lambda case, answer: True)
    with pytest.raises(ConfigError, match="`conversation_scenario` is played by a simulated user"):
        evaluate(found.prompt, [scenario(tmp_path)], [said], adapter=found.adapter)
    assert not agent.calls


def test_a_metric_of_tools_is_refused_for_an_agent_that_does_not_say_them() -> None:
    agent = Noting()
    found = BlackBox(TEXTS, agent=agent)
    case = Case(id="c", input="x", tools=(ToolUse(name="a"),))
    with pytest.raises(ConfigError, match="does not say which it called; return an AgentAnswer"):
        evaluate(found.prompt, [case], [metrics.tool_trajectory()], adapter=found.adapter)
    assert not agent.calls


def test_an_example_of_one_question_is_shown_as_its_text() -> None:
    example = GepaExample(id="c", params=(Case(id="c", input="how many?", expected="4"),))
    assert default_example_formatter(example, None) == ("how many?", "<no response>")


def test_thoughts_of_an_agent_are_no_part_of_a_conversation() -> None:
    agent = Noting()

    def thinking(query: str, call: AgentCall) -> str:
        return f"<think>{query}?</think>\n{agent(query, call)}"

    response = asked(thinking, BOOKING)
    assert response.text == "Booked for Friday."
    assert agent.calls[1][1].history[0].answer == "For when?"

"""A model made of a function behaves as any other model does."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

import pytest

from promptgraft import ScriptedAdapter
from promptgraft.adapters.base import PromptExecuted, ProviderAdapter, evaluated, free_call
from promptgraft.errors import (
    AdapterError,
    BindingError,
    ConfigError,
    DeadlineExceededError,
    OutputError,
    TransientProviderError,
)
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptRendered,
    PromptTemplate,
    RenderedPrompt,
)
from promptgraft.runtime import Deadline, Session
from promptgraft.testing import FakeClock


class Queue(StrEnum):
    BILLING = "billing"
    LOGIN = "login"


TEMPLATE: PromptTemplate[Queue] = PromptTemplate(
    ns="tests",
    key="scripted",
    sections=[MarkdownSection(title="Task", key="task", template="Sort $text.")],
    output_type=Queue,
)
PROMPT = Prompt(TEMPLATE).bind({"text": "this"})


def echo(rendered: RenderedPrompt[object]) -> str:
    return "login" if "password" in rendered.text else "billing"


def test_a_function_sees_the_rendered_prompt_and_its_answer_is_parsed() -> None:
    model: ProviderAdapter = ScriptedAdapter(echo)
    session = Session()
    response = evaluated(model, PROMPT.bind({"text": "a password"}), session=session)
    assert (response.text, response.output) == ("login", Queue.LOGIN)
    assert response.output is Queue.LOGIN
    assert evaluated(model, PROMPT, session=session).output is Queue.BILLING


def test_it_remembers_what_it_was_asked_in_order() -> None:
    model = ScriptedAdapter(echo, identity="echo-1")
    assert (model.requests, model.calls, model.identity) == ((), 0, "echo-1")
    for text in ("one", "two"):
        model.evaluate(PROMPT.bind({"text": text}), session=Session())
    assert [request.text for request in model.requests] == [
        "## Task\n\nSort one.",
        "## Task\n\nSort two.",
    ]
    assert model.calls == 2
    assert ScriptedAdapter(echo).identity == "scripted"


def test_the_session_is_told_of_the_prompt_and_then_of_the_answer() -> None:
    session = Session()
    model = ScriptedAdapter(["billing"])
    response = model.evaluate(PROMPT, session=session)
    assert session.select_all(object) == (
        PromptRendered(model.requests[0]),
        free_call("scripted"),
        PromptExecuted(response=response),
    )


def test_texts_are_used_once_each_and_then_their_end_is_said() -> None:
    model = ScriptedAdapter(["login", "billing"])
    found = [model.evaluate(PROMPT, session=Session()).text for _ in range(2)]
    assert found == ["login", "billing"]
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            model.evaluate(PROMPT, session=Session())
        assert str(caught.value) == (
            "scripted adapter: all 2 replies are used; add one for each call"
        )


def test_one_text_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(ConfigError, match=r"expected a function or a list of texts, found 'login'"):
        ScriptedAdapter("login")


def test_what_the_function_raises_reaches_the_caller() -> None:
    error = TransientProviderError("429")

    def refuse(_: RenderedPrompt[object]) -> str:
        raise error

    model = ScriptedAdapter(refuse)
    session = Session()
    with pytest.raises(TransientProviderError) as caught:
        model.evaluate(PROMPT, session=session)
    assert caught.value is error
    assert model.calls == 1
    assert session.latest(PromptExecuted) is None
    assert session.latest(PromptRendered) == PromptRendered(model.requests[0])


def test_an_answer_that_does_not_fit_is_the_candidates_fault() -> None:
    session = Session()
    with pytest.raises(OutputError, match="expected one of billing, login; found 'shipping'"):
        ScriptedAdapter(["shipping"]).evaluate(PROMPT, session=session)
    executed = session.latest(PromptExecuted)
    assert executed is not None
    assert executed.response.text == "shipping"


def test_a_prompt_that_does_not_render_is_never_asked() -> None:
    model = ScriptedAdapter(echo)
    session = Session()
    with pytest.raises(BindingError):
        model.evaluate(Prompt(TEMPLATE), session=session)
    assert (model.calls, session.select_all(object)) == (0, ())


def test_nothing_is_asked_after_the_deadline() -> None:
    clock = FakeClock()
    deadline = Deadline.after(5, clock=clock)
    model = ScriptedAdapter(echo)
    model.evaluate(PROMPT, session=Session(), deadline=deadline)
    clock.advance(5)
    session = Session()
    with pytest.raises(DeadlineExceededError):
        model.evaluate(PROMPT, session=session, deadline=deadline)
    assert (model.calls, session.select_all(object)) == (1, ())


def test_eight_threads_get_one_text_each_and_are_all_remembered() -> None:
    texts = ["login", "billing"] * 200
    model = ScriptedAdapter(texts)
    start = threading.Barrier(8)

    def ask(thread: int) -> list[str]:
        start.wait()
        prompts = [PROMPT.bind({"text": f"{thread}-{n}"}) for n in range(50)]
        return [model.evaluate(prompt, session=Session()).text for prompt in prompts]

    with ThreadPoolExecutor(8) as pool:
        found = [text for answers in pool.map(ask, range(8)) for text in answers]
    assert sorted(found) == sorted(texts)
    asked = {request.text.removeprefix("## Task\n\nSort ") for request in model.requests}
    assert asked == {f"{thread}-{n}." for thread in range(8) for n in range(50)}


def test_a_reply_may_be_a_coroutine() -> None:
    async def reply(rendered: RenderedPrompt[object]) -> str:
        await asyncio.sleep(0)
        return echo(rendered)

    answers = [ScriptedAdapter(f).evaluate(PROMPT, session=Session()) for f in (reply, echo)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("shipping", "expected a function or a list of texts, found 'shipping'; write"),
        (3, "expected a function or a list of texts, found 3"),
        (lambda: "shipping", r"cannot be called with \(rendered\): its arguments are \(\)"),
    ],
)
def test_what_cannot_reply_is_refused_at_once(reply: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"^scripted adapter: .*{fault}"):
        ScriptedAdapter(reply)


def test_a_reply_that_is_no_text_is_named() -> None:
    reply: Any = lambda _: None  # noqa: E731
    with pytest.raises(AdapterError, match="expected a text of its function, found None"):
        ScriptedAdapter(reply).evaluate(PROMPT, session=Session())

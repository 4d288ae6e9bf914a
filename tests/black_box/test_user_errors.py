"""Whatever user code raises, its boundary turns into one typed line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from subprocess import CalledProcessError
from typing import cast
from urllib.parse import quote

import pytest

from black_box.asking import asked
from optimizers.worlds import PROMPT, answer, config, propose
from promptgraft import Case, GepaOptimizer, OptimizationContext, ScriptedAdapter, Session
from promptgraft.adapters.base import evaluated
from promptgraft.agents.writing import CallbackSource
from promptgraft.errors import PromptgraftError
from promptgraft.evals import metrics
from promptgraft.evals.metrics.base import verdict_on
from promptgraft.evals.types import Answer
from promptgraft.ground.serde import shown
from promptgraft.ground.text import raised


class SilentError(Exception):
    """Cannot tell what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class PanicError(BaseException):
    """Derives from ``BaseException``, as a panic of an extension in Rust does."""


class WrongTypeError(Exception):
    def __str__(self) -> str:
        return cast("str", 5)


ERRORS = [
    SilentError(),
    WrongTypeError(),
    asyncio.CancelledError(),
    SystemExit(3),
    PanicError("called `Option::unwrap()` on a `None` value"),
    ValueError("\x1b]0;title\x07 moves \x1b[2J the screen"),
]


def failing(error: BaseException) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


def failing_later(error: BaseException) -> Callable[..., object]:
    async def fail(*_: object, **__: object) -> object:
        raise error

    return fail


def of_an_agent(fail: Callable[..., object]) -> object:
    def agent(query: str, call: object) -> object:
        return fail(query, call)

    return asked(agent)


def of_an_agent_that_may_be_async(fail: Callable[..., object]) -> object:
    async def agent(query: str, call: object) -> object:
        result = fail(query, call)
        return await result if asyncio.iscoroutine(result) else result

    return asked(agent)


def of_a_callback(fail: Callable[..., object]) -> object:
    return CallbackSource(fail, print).text()  # type: ignore[arg-type]


def of_an_adapter(fail: Callable[..., object]) -> object:
    class Adapter:
        evaluate = staticmethod(fail)

    return evaluated(Adapter(), PROMPT, session=Session())  # type: ignore[arg-type]


def of_a_stopper(fail: Callable[..., object]) -> object:
    context = OptimizationContext(
        ScriptedAdapter(answer), reflection_adapter=ScriptedAdapter(propose)
    )
    settings = config(rollout_budget=60, stoppers=[fail])
    return GepaOptimizer(context, settings).optimize(PROMPT)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("make", [failing, failing_later])
@pytest.mark.parametrize(
    "boundary",
    [of_an_agent, of_an_agent_that_may_be_async, of_a_callback, of_an_adapter, of_a_stopper],
)
def test_an_exception_of_user_code_becomes_one_typed_line(
    boundary: Callable[[Callable[..., object]], object],
    make: Callable[[BaseException], Callable[..., object]],
    error: BaseException,
) -> None:
    with pytest.raises(PromptgraftError) as caught:
        boundary(make(error))
    line = str(caught.value)
    assert "raised" in line or "cancelled" in line
    assert line.isprintable()


def of_a_metric(fail: Callable[..., object]) -> object:
    return verdict_on(metrics.python(function=fail), Case(id="a", input="x"), Answer(text="x"))  # type: ignore[arg-type]


SECRET = "desk-secret-0123456789"
PLACES = [f"{'x' * cut}{SECRET}{'y' * 2000}" for cut in range(190, 240, 8)]  # where it is cut


@pytest.mark.parametrize("boundary", [of_an_agent, of_a_callback, of_an_adapter, of_a_metric])
@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"told {SECRET}"),
        ValueError(f"told {quote(SECRET)}"),
        *(CalledProcessError(2, "ask", stderr=text.encode()) for text in PLACES),
    ],
    ids=str,
)
def test_no_part_of_a_secret_is_in_what_user_code_raises(
    boundary: Callable[[Callable[..., object]], object],
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DESK_TOKEN", SECRET)
    monkeypatch.setenv("LEGACY_KEY", os.fsdecode(b"\xff\xfe0123456"))  # no UTF-8
    with pytest.raises(PromptgraftError, match=r"ValueError: told|CalledProcessError: ") as caught:
        boundary(failing(error))
    assert "desk-secret" not in str(caught.value)
    assert "123456" not in str(caught.value)


def test_ctrl_c_passes_every_boundary() -> None:
    with pytest.raises(KeyboardInterrupt):
        of_an_agent(failing(KeyboardInterrupt()))


def test_a_value_that_cannot_be_shown_is_named_by_its_class() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise SilentError

    assert shown(Silent()) == "<Silent: its `__repr__` raised SilentError>"


def test_an_exception_that_cannot_tell_its_message_is_named() -> None:
    assert raised(SilentError()) == (
        "SilentError: (its message cannot be read: `__str__` raised RuntimeError)"
    )

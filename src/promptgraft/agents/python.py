"""An agent that is a Python function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Literal

import attrs

from promptgraft import errors
from promptgraft.adapters.base import PromptResponse
from promptgraft.agents.call import (
    Agent,
    AgentAnswer,
    AgentCall,
    answer_of_data,
    fault_of,
    too_late,
)
from promptgraft.evals.histories import tools_in
from promptgraft.ground.functions import code_digest, function_name, place_of, signature_of
from promptgraft.ground.serde import shown, unstructure
from promptgraft.ground.strict.checks import FLAG, SECONDS, STRING
from promptgraft.ground.text import raised
from promptgraft.prompt.sdk_replies import answer_in
from promptgraft.runtime.companions import result_of
from promptgraft.runtime.deadline import sooner
from promptgraft.runtime.event_loop import CancelledElsewhereError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _reports_tools(agent: PythonAgent) -> bool:
    # Compared as text: annotations may be strings, and resolving them may import or fail.
    signature = signature_of(_unwrapped(agent.function))
    return signature is not None and "AgentAnswer" in str(signature.return_annotation)


@attrs.frozen(kw_only=True)
class PythonAgent:
    """An agent that is a function: ``(query)`` or ``(query, call)``, plain or ``async``.

    It returns a text, other data that JSON can hold (also of an attrs class, a dataclass or a
    pydantic model), the reply of a framework, or an ``AgentAnswer``. An exception is the
    agent's fault and scores 0, except for connection errors, timeouts, and the statuses 429 and 5xx
    of an HTTP library. Picklable if the function is.

    Attributes:
        function: a function, partial, method or callable object. It is passed the call if it takes
            a second argument, or one named ``call``.
        version: version of the agent, if the digest of its source is not enough.
        timeout: seconds for one answer of an ``async`` function; None for no limit.
        reports_tools: whether answers list the tools that were called; by default whether the
            function is annotated to return an ``AgentAnswer``.

    Raises:
        ConfigError: ``function`` has other parameters, or has a ``timeout`` and is not ``async``.
    """

    function: Callable[..., Any]
    version: str = attrs.field(default="", validator=STRING)
    timeout: float | None = attrs.field(default=None, validator=SECONDS.or_none)
    reports_tools: bool = attrs.field(
        default=attrs.Factory(_reports_tools, takes_self=True), validator=FLAG
    )
    _call_is: Literal["", "second", "named"] = attrs.field(init=False, repr=False)

    @_call_is.default
    def _place_of_call(self) -> Literal["", "second", "named"]:
        return _place_of_call(self.function)

    def __attrs_post_init__(self) -> None:
        if self.timeout is not None and not _is_async(self.function):
            raise errors.ConfigError(
                f"timeout: `{self.name}` is not async, so it cannot be interrupted; leave it out "
                "and end the function yourself, at `call.deadline`"
            )

    @property
    def name(self) -> str:
        return function_name(self.function)

    @property
    def identity(self) -> str:
        return f"{self.name} {self.version or code_digest(self.function)}".rstrip()

    @property
    def takes_files(self) -> bool:
        """Whether it is given the images and files of a query, as ``call.files``."""
        return bool(self._call_is)

    def check(self, delivery: str, names: Collection[str]) -> None:
        if not self._call_is and delivery != "live":
            raise errors.ConfigError(
                f"agent `{self.name}` takes the query only, so the texts of a candidate never "
                "reach it; let it take `(query, call)` and read `call.texts`, or choose the "
                "delivery `live`"
            )

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        deadline = call.deadline
        if self.timeout is not None:
            deadline = sooner(deadline, self.timeout)
        try:
            value = result_of(lambda: self._called(query, call), self.name, deadline)
        except errors.LimitReachedError:
            is_own = deadline is not call.deadline and deadline is not None and deadline.expired
            if not is_own or (call.deadline and call.deadline.expired):
                raise
            raise too_late(self.name, self.timeout) from None
        except errors.PromptEvaluationError:
            raise
        except CancelledElsewhereError:
            raise errors.AgentFaultError("the agent was cancelled by its own code") from None
        except errors.user_errors() as error:
            # Not raised by the user's code but by the wait for it, so it is not the agent's fault.
            if isinstance(error, errors.PromptgraftError) and not place_of(error):
                raise
            raise fault_of(error, self.name) from error
        return value if isinstance(value, AgentAnswer) else _as_answer(value, call.turn)

    def _called(self, query: str, call: AgentCall) -> object:
        if self._call_is == "named":
            return self.function(query, call=call)
        return self.function(query, call) if self._call_is else self.function(query)


def _as_answer(value: object, turn: int) -> AgentAnswer:
    """Return plain data that a function returned as an answer."""
    fault = f"the agent returned {shown(value)}; an agent returns a value of JSON or an AgentAnswer"
    if isinstance(value, PromptResponse):  # whose text would be one field of many
        raise errors.AgentFaultError(fault)
    try:
        return answer_of_data(unstructure(answer_in(value)), tools_in(value, turn) or None)
    except errors.DataFormatError as error:
        where = "" if str(error).startswith("$: ") else f": {error}"
        raise errors.AgentFaultError(f"{fault}{where}") from None
    except errors.user_errors() as error:  # properties and methods of a reply are called
        if isinstance(error, errors.PromptgraftError):
            raise
        raise errors.AgentFaultError(
            f"{fault}: it raised {' '.join(raised(error).split())}"
        ) from error


def as_agent(agent: Agent | Callable[..., Any]) -> Agent:
    """Return an agent unchanged, and a function as a :class:`PythonAgent`.

    Raises:
        ConfigError: it is neither.
    """
    # A class has the attributes of the protocol as well.
    if isinstance(agent, Agent) and not isinstance(agent, type):
        return agent
    agent_object: object = agent
    if not callable(agent_object) or isinstance(agent_object, type):
        raise errors.ConfigError(
            f"agent: expected a function or an agent, found {shown(agent)}; "
            "`help(promptgraft.Agent)` says what an agent has"
        )
    return PythonAgent(function=agent)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    unwrapped = inspect.unwrap(function)
    return (
        unwrapped
        if inspect.isroutine(unwrapped)
        else vars(type(unwrapped)).get("__call__", unwrapped)
    )


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_unwrapped(function))


def _place_of_call(function: Callable[..., Any]) -> Literal["", "second", "named"]:
    """Return how a function takes the call besides the query; empty if it does not."""
    function_object: object = function
    if not callable(function_object) or isinstance(function_object, type):
        raise errors.ConfigError(f"agent: expected a function, found {shown(function_object)}")
    if (signature := signature_of(function)) is None:
        return ""
    place: Literal["", "second", "named"] = ""
    for number, parameter in enumerate(signature.parameters.values()):
        if parameter.name == "call" and parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            place = "named"
        elif number == 1 and parameter.kind in _POSITIONAL:
            # A second parameter with a default, such as `temperature=0`, is the user's own.
            is_meant = parameter.default is parameter.empty or parameter.name == "call"
            place = "second" if is_meant else ""
    positional = ("query", "call") if place == "second" else ("query",)
    try:
        signature.bind(*positional, **({"call": None} if place == "named" else {}))
    except TypeError:
        raise errors.ConfigError(
            f"agent `{function_name(function)}`: expected a function of `(query)` or "
            f"`(query, call)`, found `{signature}`"
        ) from None
    return place

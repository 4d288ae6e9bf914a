"""An adapter that asks a model through a function of the user."""

from __future__ import annotations

import itertools
from typing import TypeVar

from promptgraft.adapters.base import Ask, ModelCalled, PromptResponse, answered
from promptgraft.errors import (
    AdapterError,
    ConfigError,
    Lasting,
    LimitReachedError,
    PromptgraftError,
    TransientProviderError,
    lasting_of,
    user_errors,
)
from promptgraft.ground.content import files_in
from promptgraft.ground.functions import call_fault, function_identity, raised_at
from promptgraft.ground.serde import shown
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.sdk_replies import answer_in
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.companions import result_of
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")


class FunctionAdapter:
    """Asks a model through a function that takes the whole text, such as a client of yours.

    Tokens and prices are unknown: ``max_tokens`` does not count them, and ``max_cost`` is refused.
    Retries are up to the function. Can be pickled if the function can.

    Args:
        function: takes the text that the model is sent and returns its reply; may be ``async``.
            It is called from several threads at once.
        identity: its name in the run's fingerprint; by default file and name of the function, a
            digest of your code, and the attribute ``model`` of the object that it belongs to.

    Raises:
        ConfigError: the function cannot be called with a text.
    """

    missing_cost = "leave max_cost out, or give an adapter that knows the cost of its calls"

    def __init__(self, function: Ask, *, identity: str = "") -> None:
        if fault := call_fault(function, "text"):
            raise ConfigError(f"model: {fault}")
        self.function = function
        self.identity = identity or _identity(function)

    @property
    def missing_tokens(self) -> str:
        """That ``max_tokens`` does not see the tokens of the function, for the plan of a run."""
        return (
            f"limits.max_tokens counts no tokens of `{self.identity}`, since a function reports "
            "none; limit rollout_budget or timeout, or give an adapter that knows its tokens"
        )

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Refuse a prompt with tools, images or files, which a text cannot hold."""
        tools = (f"the tool `{tool.name}`" for tool in rendered.tools)
        files = (f"the {file.kind} `{file.name}`" for file in files_in(rendered.content))
        if what := next(itertools.chain(tools, files), ""):
            raise ConfigError(
                f"{self.identity} takes only a text, and the prompt `{rendered.ns}/{rendered.key}` "
                f"has {what}; name a model such as `openai/MODEL`, or give an adapter"
            )

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        self.check_prompt(rendered)
        sent = by_role(rendered, say_format=True)
        whole = "\n\n".join(filter(None, (sent.system, sent.user)))
        try:
            text = answer_in(result_of(lambda: self.function(whole), self.identity, deadline))
        except LimitReachedError:
            # The function goes on, and may cost what its answer would have cost.
            broken_off = ModelCalled(
                model=self.identity, requests=1, cost=None, seconds=0.0, fault="broken off"
            )
            session.dispatch(broken_off)
            raise
        except PromptgraftError:
            raise
        except user_errors() as error:
            if lasting_of(error) is Lasting.TRANSIENT:
                raise TransientProviderError(raised_at(error)) from error
            raise
        if isinstance(text, list) and len(text) == 1:  # DSPy returns a list of completions
            [text] = text
        if not isinstance(text, str):
            raise AdapterError(f"{self.identity}: expected a text, found {shown(text)}")
        return answered(rendered, text, session=session)


def _identity(function: Ask) -> str:
    name = f"function {function_identity(function)}"
    # Two methods of a client differ only in its model.
    model: object = getattr(getattr(function, "__self__", function), "model", None)
    return f"{name} {model}" if isinstance(model, str) else name

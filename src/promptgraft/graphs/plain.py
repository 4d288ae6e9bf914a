"""Texts and steps for code that is no flow: whatever runs during an answer can read and record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import attrs

from promptgraft.errors import CallerError, ConfigError
from promptgraft.functions import function_name
from promptgraft.graphs.run import Opened, Run, under_way


def text(node: str) -> str:
    """Return the text that a node has in the answer under way.

    Raises:
        FlowError: the graph has no such node.
        CallerError: no graph answers here.
    """
    run = under_way.get()
    if run is None:
        raise CallerError(
            f"text({node!r}): no graph answers here; have the function called by a run or by "
            "`Graph.answer`"
        )
    return run.text(node)


@contextmanager
def step(node: str, *, input: object = None) -> Iterator[Opened]:  # noqa: A002 - what it is
    """Return a context that records a step; its ``output`` is to be set inside.

    A step that is taken inside of another one comes before what comes of the outer one. Where no
    graph answers, nothing is recorded.

    Args:
        node: its node; one with a text counts as made with that text.
        input: what it was given: a text, or any other value.

    Raises:
        FlowError, CandidateError: the step may not be taken.
    """
    run = under_way.get()
    if run is None:
        yield Opened("", node, (), "")
        return
    with run.step(node, given=() if input is None else (input,)) as (opened, _):
        if node in run.setting.nodes:
            opened.parts = run.setting.nodes[node].parts
        yield opened


@attrs.frozen
class PlainFlow:
    """A function that knows of no run, as the flow of a graph; pickles when the function does.

    Attributes:
        function: the function.
    """

    function: Callable[..., Any]

    def __call__(self, run: Run, *params: object) -> Any:
        del run
        return self.function(*params)


@attrs.frozen
class NotAsked:
    """Stands where adapters stand, for texts that a function reads itself.

    Attributes:
        function: the function.
    """

    function: Callable[..., Any]

    @property
    def identity(self) -> str:
        """File and name of the function."""
        return f"function {function_name(self.function)}"

    def evaluate(self, prompt: object, *, session: object, deadline: object = None) -> NoReturn:
        """Refuse: the function reads its texts with :func:`text`.

        Raises:
            ConfigError: always.
        """
        del prompt, session, deadline
        raise ConfigError(f"{self.identity} reads its texts itself; call `text`, not `run.ask`")

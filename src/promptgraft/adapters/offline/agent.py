"""The embedded model as an agent: it does what the nearest example in the prompt does."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.adapters.offline.agent_answer import Answering, answer
from promptgraft.adapters.offline.agent_calls import (
    Analogy,
    Made,
    NothingThereError,
    first_guess,
    make,
)
from promptgraft.adapters.offline.agent_patterns import (
    Call,
    Nearness,
    Pattern,
    input_of,
    nearness_over,
    read_patterns,
    shown_call,
)
from promptgraft.prompt.fields import fields_of
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

NEAR = 0.65
"""How near a worked example must be to be followed; see :class:`Nearness`."""

_MOST_CALLS = 8


def serves(rendered: RenderedPrompt[object]) -> bool:
    """Tell whether a prompt is one for an agent: it has tools, or an answer with fields."""
    return bool(rendered.tools) or bool(fields_of(rendered.output_type))


def act(
    rendered: RenderedPrompt[object],
    *,
    session: SessionProtocol,
    deadline: Deadline | None,
    attention: int,
) -> str:
    """Answer an agent's prompt: call its tools, and return the answer as text.

    The worked example whose objective is nearest to the input is followed step by step, if it
    is near enough. Otherwise the tool whose descriptions are nearest is called once, like the
    nearest of its example calls. ``specs/adapters.md`` tells how.

    Raises:
        DeadlineExceededError: ``deadline`` has passed.
    """
    text = input_of(rendered)
    patterns = read_patterns(rendered)
    tools = tuple(_Offered.read(tool) for tool in rendered.tools)
    nearness = nearness_over(
        [
            *(pattern.objective for pattern in patterns),
            *(tool.said for tool in tools),
            *(call.description for tool in tools for call in tool.calls),
        ]
    )
    position, near = nearness.nearest(text, [pattern.objective for pattern in patterns])
    if near >= NEAR:
        followed = _Following(tools, session, deadline).follow(patterns[position], text)
    else:
        followed = _Following(tools, session, deadline).choose(nearness, text)
    return answer(
        rendered,
        Answering(text=text, patterns=patterns, followed=followed, attention=attention),
    )


@attrs.frozen
class _Offered:
    """A tool, what is said of it, and the calls of it that are shown."""

    tool: RenderedTool
    said: str
    calls: tuple[Call, ...]

    @classmethod
    def read(cls, tool: RenderedTool) -> _Offered:
        said = (tool.name.replace("_", " "), tool.description, *tool.param_descriptions.values())
        return cls(tool, "\n".join(said), tuple(map(shown_call, tool.examples)))


@attrs.frozen
class _Following:
    tools: Sequence[_Offered]
    session: SessionProtocol
    deadline: Deadline | None

    def follow(self, pattern: Pattern, text: str) -> Analogy:
        """Make the calls of a worked example for a new input."""
        made: list[Made | None] = []
        shown = pattern.calls[:_MOST_CALLS]
        by_name = {offered.tool.name: offered.tool for offered in self.tools}
        for index, call in enumerate(shown):
            so_far = Analogy(before=pattern.objective, after=text, shown=shown[:index], made=made)
            made.append(self._call(by_name.get(call.tool), call, so_far))
        return Analogy(before=pattern.objective, after=text, shown=shown, made=tuple(made))

    def choose(self, nearness: Nearness, text: str) -> Analogy:
        """Call the tool that the input speaks for."""
        if not self.tools:
            return Analogy(before="", after=text)
        scores = [self._score(nearness, offered, text) for offered in self.tools]
        offered = self.tools[scores.index(max(scores))]
        position, _ = nearness.nearest(text, [call.description for call in offered.calls])
        if not offered.calls:
            made = make(offered.tool, first_guess(offered.tool, text), self.session)
            return Analogy(before="", after=text, made=(made,))
        call = offered.calls[max(position, 0)]
        analogy = Analogy(before=call.description, after=text)
        return attrs.evolve(analogy, made=(self._call(offered.tool, call, analogy),))

    def _score(self, nearness: Nearness, offered: _Offered, text: str) -> float:
        descriptions = [call.description for call in offered.calls]
        _, near = nearness.nearest(text, descriptions)
        return nearness.between(text, offered.said) + near

    def _call(self, tool: RenderedTool | None, call: Call, analogy: Analogy) -> Made | None:
        """Make a call like a shown one; None where the prompt has no such tool or value."""
        if self.deadline is not None:
            self.deadline.check()
        if tool is None:
            return None
        try:
            given = analogy.of(call.input)
        except NothingThereError:
            return None
        return make(tool, given, self.session)

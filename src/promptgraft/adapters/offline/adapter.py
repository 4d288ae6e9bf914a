"""The embedded offline model behind the adapter contract."""

from __future__ import annotations

from typing import TypeVar

from promptgraft.adapters.base import PromptResponse, answered
from promptgraft.adapters.offline.learner import learn
from promptgraft.adapters.offline.metaprompt import read_task
from promptgraft.adapters.offline.reflector import rewrite
from promptgraft.errors import ConfigError
from promptgraft.prompt.output import choices_of
from promptgraft.prompt.rendering import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")


class OfflineAdapter:
    """The embedded offline model (work in progress)."""

    def __init__(self, *, identity: str = "offline/1") -> None:
        self._identity = identity

    @property
    def identity(self) -> str:
        return self._identity

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        return answered(rendered, _reply(rendered), session=session)


def _reply(rendered: RenderedPrompt[OutputT]) -> str:
    choices = choices_of(rendered.output_type)
    if choices is not None:
        said = "\n".join(
            "".join(s.text if s.placeholder is None else " " for s in section.segments)
            for section in rendered.sections
        )
        seen = "\n".join(
            s.text for section in rendered.sections for s in section.segments if s.placeholder
        )
        scores = learn(said, choices, 100).scores(seen)
        return choices[scores.index(max(scores))]
    if rendered.ns == "promptgraft/gepa" and rendered.key == "reflect-section":
        text = rewrite(read_task(rendered.text))
        return f"``````instruction\n{text}\n``````"
    raise ConfigError("the embedded offline model answers choices and reflections only")

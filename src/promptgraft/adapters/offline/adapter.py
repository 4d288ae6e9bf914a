"""The embedded offline model, behind the contract of every adapter."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeVar

from promptgraft.adapters.base import PromptResponse, Usage, answered, free_call
from promptgraft.adapters.offline.agent import act, serves
from promptgraft.adapters.offline.agent_reflector import TAGS, is_about_fields, reflect
from promptgraft.adapters.offline.learner import ATTENTION, Instruction, lesson_of
from promptgraft.adapters.offline.metaprompt import read_task
from promptgraft.adapters.offline.reflector import WORDS_PER_FAILURE, rewrite
from promptgraft.adapters.offline.reply import instruction_block
from promptgraft.errors import ConfigError
from promptgraft.prompt.output import choices_of
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import shown
from promptgraft.strict.checks import COUNT

OutputT = TypeVar("OutputT")

_REFLECTION = ("promptgraft/gepa", "reflect-section")


class OfflineAdapter:
    """The embedded offline model: no key, no network, no randomness.

    It is a small in-context learner for demos, tests and benchmarks. Asked for a choice, it
    compares the words of the input (what stands in for placeholders) with the rules and the
    examples in the prompt's own text, and takes the choice that they speak for most; so a
    better prompt scores better on inputs that nobody has seen. Asked to reflect, it reads the
    same reflection prompt as any model and writes words of the failures into the rules.

    It is **not** a language model: it knows a list of English stop words and word endings and
    nothing else, understands no sentence, and answers no other prompt. Its scores say that a
    search works, not how good a prompt is with a real model. ``specs/adapters.md`` tells how
    it decides.

    An answer is a function of the rendered prompt and the options alone. Safe to call from
    several threads.

    Args:
        identity: what a run's fingerprint says about it; options that are not the default
            are added.
        attention: how many rule words of each choice count, in reading order.
        words_per_failure: how many words of a failed input a reflection takes up at most.

    Raises:
        ConfigError: an option is no integer of at least 1.
    """

    def __init__(
        self,
        *,
        identity: str = "offline/1",
        attention: int = ATTENTION,
        words_per_failure: int = WORDS_PER_FAILURE,
    ) -> None:
        defaults = {"attention": ATTENTION, "words_per_failure": WORDS_PER_FAILURE}
        options: dict[str, object] = {
            "attention": attention,
            "words_per_failure": words_per_failure,
        }
        for name, value in options.items():
            COUNT.hold(f"OfflineAdapter: {name}", value)
        changed = [f"{name}={value}" for name, value in options.items() if value != defaults[name]]
        self._identity = " ".join((identity, *changed))
        self._attention = attention
        self._words_per_failure = words_per_failure

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def longest_answer(self) -> int:
        return 0

    def price_of(self, usage: Usage) -> Decimal:
        del usage
        return Decimal(0)

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Render ``prompt``, answer it, and parse the answer.

        Raises:
            ConfigError: the prompt asks for something that the embedded model does not serve.
            BindingError, PromptRenderError: the prompt does not render.
            DeadlineExceededError: ``deadline`` has passed.
        """
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        text = self._reply(rendered, session, deadline)
        session.dispatch(free_call(self._identity))
        return answered(rendered, text, session=session)

    def _reply(
        self,
        rendered: RenderedPrompt[OutputT],
        session: SessionProtocol,
        deadline: Deadline | None,
    ) -> str:
        if rendered.ns == _REFLECTION[0] and rendered.key in TAGS:
            if rendered.key != _REFLECTION[1] or is_about_fields(rendered.text):
                return reflect(rendered.key, rendered.text, self._words_per_failure)
        elif serves(rendered):
            return act(rendered, session=session, deadline=deadline, attention=self._attention)
        choices = choices_of(rendered.output_type)
        if choices is not None:
            lesson = lesson_of(_instruction(rendered), choices, self._attention)
            return choices[lesson.choose(_input(rendered))]
        if (rendered.ns, rendered.key) == _REFLECTION:
            text = rewrite(
                read_task(rendered.text),
                words_per_failure=self._words_per_failure,
                attention=self._attention,
            )
            return instruction_block(text)
        raise ConfigError(
            f"the embedded offline model does not serve `{rendered.ns}/{rendered.key}`: it answers "
            "prompts whose output type is a choice (an Enum or Literal of strings) or a class, "
            f"prompts with tools, and the reflection prompts of `{_REFLECTION[0]}`; found output "
            f"type {shown(rendered.output_type)}; use the adapter of a model provider"
        )


def _instruction(rendered: RenderedPrompt[object]) -> Instruction:
    return tuple(
        (
            section.title,
            tuple(
                segment.text if segment.placeholder is None else " " for segment in section.segments
            ),
        )
        for section in rendered.sections
    )


def _input(rendered: RenderedPrompt[object]) -> str:
    return "\n".join(
        segment.text
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    )

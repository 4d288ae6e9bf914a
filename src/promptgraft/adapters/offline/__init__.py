"""The embedded offline model: no key, no network, no randomness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import attrs

from promptgraft.adapters.base import FreeAdapter, PromptResponse, answered, free_call
from promptgraft.adapters.offline.agent import act
from promptgraft.adapters.offline.learner import ATTENTION
from promptgraft.adapters.offline.reflector import NOTHING_LEARNED, QUESTIONS, Habits, reflect
from promptgraft.adapters.offline.writer import WORDS_PER_FAILURE, WORDS_PER_RULE
from promptgraft.errors import ConfigError
from promptgraft.ground.content import Image
from promptgraft.ground.strict.checks import COUNT
from promptgraft.ground.text import on_one_line
from promptgraft.prompt.fields import fields_of, options_of
from promptgraft.prompt.rendered import RenderedPrompt, Segment
from promptgraft.prompt.schema import type_name
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")

_META_NS, _GRADIENT_NS = "promptgraft/gepa", "promptgraft/gradient"
__all__ = ["OfflineAdapter"]


class OfflineAdapter(FreeAdapter):
    """The embedded offline model: no key, no network, no randomness.

    A small in-context learner for demos, tests and benchmarks. Asked for a choice, it compares the
    words of the input (the values of placeholders) with the rules and examples in the prompt's own
    text, and returns the choice with the most evidence; so a better prompt scores better on unseen
    inputs. Asked to reflect, it reads the same reflection prompt as any model and adds words from
    the failures to the rules.

    It is **not** a language model: it knows a list of English stop words and word endings and
    nothing else, does not understand sentences, and answers no other prompts. Its scores show that
    a search works, not how good a prompt is with a real model. ``specs/adapters.md`` describes how
    it decides.

    It cannot see: of an image it reads the caption that is stored in the file, and it refuses a
    prompt with an image that has none.

    An answer depends on the rendered prompt and the options alone. Thread-safe.

    Args:
        identity: its name in a run's fingerprint; options other than the defaults are added.
        attention: how many rule words count per choice, in reading order.
        words_per_failure: most words that a reflection takes from a failed input.
        words_per_rule: most words of evidence that it writes into a rule.

    Raises:
        ConfigError: an option is not an integer of at least 1.
    """

    needs_choices = True

    def __init__(
        self,
        *,
        identity: str = "offline/5",
        attention: int = ATTENTION,
        words_per_failure: int = WORDS_PER_FAILURE,
        words_per_rule: int = WORDS_PER_RULE,
    ) -> None:
        for name, value, default in (
            ("attention", attention, ATTENTION),
            ("words_per_failure", words_per_failure, WORDS_PER_FAILURE),
            ("words_per_rule", words_per_rule, WORDS_PER_RULE),
        ):
            COUNT.hold(f"OfflineAdapter: {name}", value)
            identity += "" if value == default else f" {name}={value}"
        super().__init__(identity)
        self._habits = Habits(words_per_failure, words_per_rule, attention)

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Raise a ``ConfigError`` if the embedded model does not serve this kind of prompt."""
        if _asks(rendered):
            return
        if not _has_form(rendered):
            self.answer_freely(rendered)
        _as_read(rendered)

    def answer_freely(self, rendered: RenderedPrompt[object]) -> str:
        """Refuse a prompt for an answer without a form, with a ``ConfigError``."""
        kind = rendered.output_type
        answer = "free text" if kind in (str, None) else f"an answer of type `{type_name(kind)}`"
        raise ConfigError(
            f"the embedded offline model does not serve `{rendered.ns}/{rendered.key}`: it answers "
            "with one of several choices, with the fields of a class, or by calling tools, and "
            f"this prompt wants {answer}; list the answers (`output: {{choices: [yes, no]}}` in "
            "the front matter of Markdown, `output_type=Literal[...]` in Python), or name the "
            "model of a provider, such as `openai/MODEL`"
        )

    def nothing_learned(self, replies: Iterable[str]) -> str:
        """Return the most frequent reason of replies for learning nothing; empty for none."""
        lines = (reply.partition("\n")[0] for reply in replies if reply.startswith(NOTHING_LEARNED))
        return next((line for line, _ in Counter(lines).most_common(1)), "")

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        """Render ``prompt``, answer it, and parse the answer.

        Raises:
            ConfigError: the embedded model does not serve this kind of prompt, or is to see an
                image.
        """
        if deadline is not None:
            deadline.check()
        rendered = _as_read(prompt.render(session))
        # By name, because the output types of these prompts do not tell them from a user's.
        if rendered.ns == _META_NS and rendered.key in QUESTIONS:
            text = reflect(rendered.key, rendered.text, self._habits)
        elif rendered.ns == _GRADIENT_NS:
            from promptgraft.adapters.offline import gradients  # for one of the algorithms

            text = gradients.answer(rendered.key, rendered.text, self._habits)
        elif _has_form(rendered):
            text = act(
                rendered, session=session, deadline=deadline, attention=self._habits.attention
            )
        else:
            text = self.answer_freely(rendered)
        session.dispatch(free_call(self.identity))
        return answered(rendered, text, session=session)


class DryAdapter(OfflineAdapter):
    """Answers prompts for free text with their inputs, so that all around the model is tried."""

    def answer_freely(self, rendered: RenderedPrompt[object]) -> str:
        """Return the values of the placeholders of a prompt, or its text if it has none.

        Raises:
            ConfigError: the prompt wants another type.
        """
        if rendered.output_type not in (str, None):
            return super().answer_freely(rendered)
        segments = (segment for section in rendered.sections for segment in section.segments)
        values = [segment.text for segment in segments if segment.placeholder is not None]
        return "\n".join(values) or rendered.text


def _asks(rendered: RenderedPrompt[object]) -> bool:
    """Return whether a prompt is a question of an algorithm."""
    return rendered.ns == _GRADIENT_NS or (rendered.ns == _META_NS and rendered.key in QUESTIONS)


def _as_read(rendered: RenderedPrompt[OutputT]) -> RenderedPrompt[OutputT]:
    """Return a prompt with the texts of files and the captions of images in place of these.

    Raises:
        ConfigError: there is none, and the prompt is no question about a rollout.
    """
    if not any(segment.file for section in rendered.sections for segment in section.segments):
        return rendered
    sections = [
        attrs.evolve(section, segments=tuple(_read(part, rendered) for part in section.segments))
        for section in rendered.sections
    ]
    return attrs.evolve(rendered, sections=tuple(sections))


def _read(segment: Segment, rendered: RenderedPrompt[object]) -> Segment:
    file = segment.file
    if file is None:
        return segment
    text = on_one_line(file.caption) if isinstance(file, Image) else file.text
    if not text and not _asks(rendered):
        raise ConfigError(
            f"the embedded offline model cannot see {file.name}, which has no caption (in a PNG "
            "the text `Description`); use the adapter of a model provider"
        )
    return Segment(text or segment.text, segment.placeholder)


def _has_form(rendered: RenderedPrompt[object]) -> bool:
    kind = rendered.output_type
    return bool(rendered.tools or fields_of(kind) or options_of(kind))

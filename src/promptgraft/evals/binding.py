"""The parameters of a prompt for cases: which value of a case fills which placeholder."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeGuard

import attrs

from promptgraft import errors
from promptgraft.evals.field_kinds import MESSAGES, in_usual_form
from promptgraft.evals.rows import SETS, CaseFaults, advice_for, in_one_line
from promptgraft.evals.types import Case, Conversation, Speaker
from promptgraft.ground.content import Content, File, Input, in_words, is_content
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import call_fault
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.ground.strict.nodes import Source
from promptgraft.ground.text import listed
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.syntax import SHELL_NAMES, spelled_as_text
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt, takes_cases

_NO_PLACE = (
    "write `$text` where it goes, `{text}` with `syntax: format`, `{{ text }}` with `jinja`; "
    "`plain` fills in nothing"
)
_MOST_NAMED = 20

ParamsOf = Callable[[Case], object]
"""Makes the parameters of a prompt from a case: one parameter, or a tuple of several."""


class _CaseInput(FrozenMap[str, object]):
    """The placeholder values of a case.

    A class of its own, because a prompt keeps only the last parameter of each class.
    """


def params_of_cases(
    prompt: Prompt[object],
    cases: Iterable[Case],
    params: ParamsOf | None = None,
    *,
    noted: CaseFaults | None = None,
) -> dict[str, tuple[object, ...]]:
    """Return the parameters of the prompt for each case, by case id.

    Without ``params``, a text fills the only open placeholder, and an object fills the
    placeholders with the names of its keys; the prompt of an agent takes the case itself. A case
    with a recorded answer needs no parameters.

    Cases that do not fit the prompt raise one ``ConfigError``. With ``noted``, their faults are
    added there instead and they are left out of the result.
    """
    faults = in_one_line() if noted is None else noted
    params_by_case: dict[str, tuple[object, ...]] = {}
    if fault := call_fault(params, "case"):
        raise errors.ConfigError(f"params: {fault}")
    make = params or _maker_of(prompt, in_project=noted is not None)
    for case in cases:
        if case.id in params_by_case:
            raise errors.ConfigError(f"cases: two cases have the id `{case.id}`; ids must differ")
        if case.recorded is not None:
            params_by_case[case.id] = ()
            continue
        try:
            params_by_case[case.id] = _checked_params(prompt, make(case))
        except (errors.BindingError, errors.ConfigError) as error:
            faults.add_of(case, str(error))
    if noted is None:
        faults.refuse()
    return params_by_case


def _check_single(case: Case) -> None:
    """Refuse a case with several turns, which would be lost but for the last."""
    if case.turns:
        raise errors.ConfigError(
            "a case with several turns needs `params` that say where they go, or a graph in place "
            "of the prompt, whose flow is called with each message"
        )
    if case.scenario is not None:
        raise errors.ConfigError(
            "a `conversation_scenario` is played with an agent; name one under `agent`"
        )


def _maker_of(prompt: Prompt[object], *, in_project: bool) -> ParamsOf:
    if takes_cases(prompt):
        return lambda case: case
    if isinstance(prompt, TextsPrompt) and prompt.takes_inputs:
        return partial(_whole_input, plays_turns=prompt.plays_turns)
    open_names, hints = _open_placeholders(prompt), prompt.template.lookalikes()
    # For names that are missing in cases.
    for _, section in prompt.template.walked:
        hints |= {
            name: f"write `{literal}` in the prompt for the characters themselves"
            for name in section.source.reads
            if (literal := spelled_as_text(name, section.source.syntax))
        }
    return lambda case: _by_name(case, open_names, hints, in_project=in_project)


def _whole_input(case: Case, *, plays_turns: bool) -> object:
    """Return the input of a case for a function; earlier messages as part of one text."""
    if case.turns and plays_turns:
        messages = tuple(turn.user for turn in case.turns)
        return Conversation(messages=messages, context=case.context)
    _check_single(case)
    return _conversation(case, ("input",))["input"] if case.context else case.input


def _checked_params(prompt: Prompt[object], found: object) -> tuple[object, ...]:
    params = found if isinstance(found, tuple) else (found,)
    # A block that does not render with these values is a fault of the prompt, not of the case.
    with contextlib.suppress(errors.CandidateError):
        # Without overrides, which cannot use other placeholders than the source.
        attrs.evolve(prompt.bind(*params), overrides_store=None).render()
    return params


def _by_name(
    case: Case, open_names: tuple[str, ...], hints: Mapping[str, str], *, in_project: bool
) -> Mapping[str, object]:
    _check_single(case)
    there = listed(open_names) or "none"
    if case.context:
        return _conversation(case, open_names)
    if isinstance(case.input, dict):
        for name, value in case.input.items():
            if name not in open_names:
                near = did_you_mean(name, list(open_names))
                advice = advice_for(None if in_project else case.origin)
                is_set = isinstance(value, str) and value.casefold() in SETS
                unread = advice.unread(name, case, is_set=is_set)
                mend = hints.get(name, f"open placeholders: {there}; {unread}")
                raise errors.ConfigError(
                    f"input: the prompt has no placeholder `{name}`{near}; {mend}"
                )
        needed = [name for name in open_names if name not in SHELL_NAMES]
        if missing := [name for name in needed if name not in case.input]:
            mend = f"; {hints[missing[0]]}" if missing[0] in hints else ""
            raise errors.ConfigError(
                f"input: expected a value for {listed(missing)}, found none; the case has "
                f"{listed([*case.input][:_MOST_NAMED]) or 'nothing'}{mend}"
            )
        return _CaseInput((name, _in_words(value)) for name, value in case.input.items())
    # Literal beside another placeholder, which the text is meant for.
    open_names = tuple(name for name in open_names if name not in SHELL_NAMES) or open_names
    if not _is_message(case.input):
        raise errors.ConfigError(f"input: expected a text or an object, found {shown(case.input)}")
    if len(open_names) != 1:
        meant = "; ".join(itertools.islice(hints.values(), 3)) or _NO_PLACE
        mend = "give an object with values by name, or `params`" if open_names else meant
        raise errors.ConfigError(f"input: a text needs one open placeholder, found {there}; {mend}")
    [open_name] = open_names
    if cut := [hint for hint in hints.values() if f", of which only `${open_name}` " in hint]:
        raise errors.ConfigError(f"input: {cut[0]}")
    return _CaseInput({open_name: case.input})


def _is_message(value: Input) -> TypeGuard[str | Content]:
    return isinstance(value, str) or is_content(value)


def _conversation(case: Case, open_names: tuple[str, ...]) -> Mapping[str, object]:
    """Return the values of a conversation: as one text, or its end apart from `context`."""
    before = [_said(message.speaker, message.text) for message in case.context]
    other_names = [name for name in open_names if name not in {"context", *SHELL_NAMES}]
    if _is_message(case.input) and len(other_names) == 1:
        if len(open_names) > 1:
            return _CaseInput({"context": _on_lines(before), other_names[0]: case.input})
        return _CaseInput({other_names[0]: _on_lines([*before, _said(Speaker.USER, case.input)])})
    raise errors.ConfigError(
        "a case with a context needs one open placeholder for the conversation, or one beside "
        f"`context`, or `params` that say where it goes; open placeholders: "
        f"{listed(open_names) or 'none'}"
    )


class _Messages(list[object]):
    """Messages that a placeholder shows as a text, and over which a block of Jinja may loop."""

    def __init__(self, messages: Sequence[object], text: str) -> None:
        super().__init__(messages)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ([*self], self._text)


def _in_words(value: object) -> object:
    """Return messages in a form that is shown with a paragraph for each; other values as such."""
    plain = in_usual_form([*value]) if isinstance(value, (list, tuple)) else None
    if not isinstance(plain, list) or not plain or not all(map(_has_role, plain)):
        return value
    source = Source.of(plain)
    messages = MESSAGES.read(source.root)
    if messages is None or not source.is_right(()):
        return value
    words = _on_lines([_said(message.speaker, message.text) for message in messages])
    return _Messages(plain, words) if isinstance(words, str) else words


def _has_role(value: object) -> bool:
    return isinstance(value, Mapping) and "role" in value and "content" in value


def _said(speaker: Speaker, content: str | Content) -> Content:
    if isinstance(content, str):
        return (f"{speaker}: {content}",)
    return (f"{speaker}:", *content)


def _on_lines(messages: Sequence[Content]) -> str | Content:
    """Return messages as one text; with images or files, as content with a line for each piece."""
    if any(isinstance(piece, File) for message in messages for piece in message):
        return tuple(piece for message in messages for piece in message)
    return "\n\n".join(in_words(message) for message in messages)


def _open_placeholders(prompt: Prompt[object]) -> tuple[str, ...]:
    """Return the placeholders of the prompt that are not bound yet."""
    names = {name for param in prompt.params for name in values_of(param)}
    reads = dict.fromkeys(
        name for _, section in prompt.template.walked for name in section.source.reads
    )
    return tuple(name for name in reads if name not in names)

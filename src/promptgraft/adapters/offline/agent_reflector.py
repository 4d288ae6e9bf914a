"""Improves the parts of an agent's prompt out of failures, as a reflection model would."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import attrs

from promptgraft.adapters.offline.agent_calls import leaves
from promptgraft.adapters.offline.agent_compose import task_example, tool_example
from promptgraft.adapters.offline.agent_meta import (
    PERFECT,
    Case,
    Field,
    Question,
    fields_in,
    one_line,
    read_question,
)
from promptgraft.adapters.offline.agent_names import form_of, invented, plain_words
from promptgraft.adapters.offline.metaprompt import ReflectionTask, ShownExample
from promptgraft.adapters.offline.names import names_of
from promptgraft.adapters.offline.reflector import rewrite
from promptgraft.adapters.offline.words import term

TAGS = {
    "reflect-section": "instruction",
    "reflect-tool": "json",
    "reflect-tool-example": "json",
    "reflect-task-example": "json",
    "generate-task-example": "json",
    "reflect-output-field": "json",
}
"""For each meta-prompt the word that a reply's block opens with."""

_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_DESCRIPTION = "description"
_VALUE = "value "


def is_about_fields(text: str) -> bool:
    """Tell whether a meta-prompt asks about a prompt whose answers have fields."""
    return bool(read_question(text).fields) and not read_question(text).task.choices


def reflect(key: str, text: str, words_per_failure: int) -> str:
    """Return a reply to a meta-prompt: one block with the tag that it asks for.

    Raises:
        ConfigError: the meta-prompt does not show the current text.
    """
    question = read_question(text)
    match key:
        case "reflect-section":
            better = _section(question, words_per_failure)
        case "reflect-tool":
            better = _tool(question, words_per_failure)
        case "reflect-tool-example":
            better = tool_example(question)
        case "reflect-output-field":
            better = _field(question, words_per_failure)
        case _:
            better = task_example(question, keyed=key == "generate-task-example")
    return _block(TAGS[key], better)


def _block(tag: str, text: str) -> str:
    usable = _UNUSABLE.sub("", text).replace("\r", "")
    longest = max((len(run) for run in re.findall(r"`+", usable)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{tag}\n{usable}\n{fence}"


def _section(question: Question, words_per_failure: int) -> str:
    """Return the rules with words of the failures, one field after the other."""
    current = question.task.current
    for field in question.fields:
        if field.options:
            current = _ruled(question, field, current, words_per_failure)
    return current


def _ruled(question: Question, field: Field, current: str, words_per_failure: int) -> str:
    """Return rules on one choice, improved like those of a prompt that asks for nothing else."""
    task = attrs.evolve(
        question.task,
        current=current,
        choices=field.options,
        examples=tuple(_as_choice(case, field) for case in question.cases),
    )
    return rewrite(task, words_per_failure=words_per_failure)


def _as_choice(case: Case, field: Field) -> ShownExample:
    given, wanted = case.given.get(field.name), case.wanted.get(field.name)
    failed = case.failed and given != wanted
    return ShownExample(
        score=None if case.shown.score is None else (0.0 if failed else PERFECT),
        input=case.evidence,
        output=str(given),
        feedback=str(wanted),
    )


def _tool(question: Question, words_per_failure: int) -> str:
    """Return the descriptions with what the inputs that the tool is right for have in common.

    That is words, and made-up names of the kinds that only those inputs have.
    """
    name = question.part.removeprefix("tool ")
    right = [case for case in question.cases if case.right]
    mine = [case for case in right if case.right[0].tool == name]
    others = [case.shown.input for case in right if case.right[0].tool != name]
    missed = [case.shown.input for case in mine if not case.called or case.called[0].tool != name]
    taken = frozenset[str]().union(*map(form_of, others))
    words = _frequent(
        [word for word in plain_words(text) if term(word) not in taken] for text in missed
    )
    samples = [
        sample
        for text in missed
        for sample in invented(text).values()
        if not form_of(sample) & taken and sample not in question.task.current
    ]
    limit = words_per_failure * len(missed)
    return _with_words(question.task.current, [*dict.fromkeys(samples), *words[:limit]])


def _frequent(texts: Iterable[Sequence[str]]) -> list[str]:
    """Return the different words, those of most texts first."""
    counts = Counter(word for words in texts for word in dict.fromkeys(words))
    return [word for word, _ in counts.most_common()]


def _with_words(text: str, words: Sequence[str]) -> str:
    """Return descriptions with words added to the first, those that are not there yet."""
    said = fields_in(text)
    known = {term(word) for name in said for word in plain_words(f"{name}: {said[name]}")}
    new = [word for word in words if term(word) not in known and word not in text]
    before = str(said.get(_DESCRIPTION) or "").rstrip(" .")
    if new:
        said[_DESCRIPTION] = ", ".join((before, *new) if before else new)
    return one_line(said)


def _field(question: Question, words_per_failure: int) -> str:
    """Return what is said of a field: meanings of options, or where its value is found."""
    name = question.part.removeprefix("output field ").rpartition(".")[2]
    own = (field for field in question.fields if field.name == name)
    field = next(own, None) or _by_options(question)
    if field is None:
        return question.task.current
    if not field.options:
        return _with_words(question.task.current, list(_places(question.cases, field)))
    return _meanings(question, field, words_per_failure)


def _by_options(question: Question) -> Field | None:
    """Return the field whose options the text names: it may be shown under another name."""
    said = fields_in(question.task.current)
    for field in question.fields:
        if field.options and all(f"{_VALUE}{option}" in said for option in field.options):
            return field
    return None


def _places(cases: Sequence[Case], field: Field) -> Iterator[str]:
    """Yield the keys under which the right calls find the values of a field."""
    for case in cases:
        wanted = case.wanted.get(field.name)
        for call in reversed(case.right) if case.failed else ():
            for path, leaf in (*leaves(call.output), *leaves(call.input)):
                if leaf == wanted and wanted != "":
                    yield from (key for key in path if isinstance(key, str))


def _meanings(question: Question, field: Field, words_per_failure: int) -> str:
    said = fields_in(question.task.current)
    rules = [
        f"- {option}: {' '.join(str(said[f'{_VALUE}{option}']).split())}"
        for option in field.options
        if said.get(f"{_VALUE}{option}")
    ]
    shorter: ReflectionTask = attrs.evolve(question.task, current="\n".join(rules), previous=None)
    asked = attrs.evolve(question, task=shorter)
    better = _ruled(asked, field, shorter.current, words_per_failure)
    return one_line({**said, **dict(_labelled(better, field))})


def _labelled(rules: str, field: Field) -> Iterator[tuple[str, str]]:
    said: dict[int, list[str]] = {}
    names = names_of(field.options)
    for line in rules.split("\n"):
        if opening := names.opening(line):
            said.setdefault(opening.choice, []).append(opening.rest.strip())
    for index, option in enumerate(field.options):
        yield f"{_VALUE}{option}", ", ".join(said.get(index, ()))

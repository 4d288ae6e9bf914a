"""What callers hand to :func:`promptgraft.optimize`, in any of its forms, as what a run needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from promptgraft.errors import ConfigError
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.metrics import load_metrics
from promptgraft.evals.metrics.expressions import Judge, Python
from promptgraft.evals.metrics.judging import check_metrics
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.frames import Frame, is_frame
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.ground.text import listed
from promptgraft.overrides.parts.body import BodySyntax, marker_names
from promptgraft.overrides.parts.validation import check_key
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import TextsPrompt, takes_cases
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.prompts import Improvable, PromptSet

Source = Improvable | PromptTemplate[object] | str | Mapping[str, str]
"""What can be improved: a text, texts by name, a template, a prompt, a graph, ``Texts``, ..."""

Examples = (
    Splits
    | Dataset
    | Frame
    | Iterable[Case | Mapping[str, object] | tuple[object, object]]
    | str
    | Path
)
"""Cases: a file, a data set, a table, mappings, pairs of input and expected answer, or splits."""

Scoring = str | Metric | Judge | Sequence[str | Metric | Judge]
"""Metrics, by name, as objects, or as functions."""

NAMESPACE = "texts"
"""The namespace of prompts that are made of plain texts."""

_INPUT = "input"
_PAIR = 2
# A dollar sign that begins no placeholder, such as that of `$5`.
_LITERAL_DOLLAR = re.compile(r"(?<!\$)\$(?!\$|\{?[_a-zA-Z])")


def splits_of(cases: Examples, reads: Collection[str] = ()) -> Splits:
    """Return cases as training, validation and test sets; the prompt reads values by ``reads``.

    Splits are returned unchanged; other cases are split 60 : 20 : 20 by the hashes of their ids.

    Raises:
        ConfigError: they are no cases.
        DataFormatError: they are faulty or too few; the error lists all faults.
    """
    if isinstance(cases, Splits):
        return cases
    return Splits.by_ratio(_dataset_of(cases, reads))


def names_read(prompt: Source) -> frozenset[str]:
    """Return the names of the values that texts, or one prompt, read from a case."""
    match prompt:
        case str():
            return marker_names(prompt, BodySyntax.DOLLAR)
        case PromptTemplate():
            return frozenset(name for _, section in prompt.walked for name in section.source.reads)
        case Prompt():
            return names_read(prompt.template)
        case Mapping():
            # Values that are no texts are refused later.
            return frozenset().union(*map(names_read, prompt.values()))
    return frozenset()


def _dataset_of(cases: Any, reads: Collection[str]) -> Dataset:
    match cases:
        case Dataset():
            return cases
        case str() | Path():
            return Dataset.load(cases, parameters=reads)
        case Mapping():
            raise ConfigError(
                "cases: expected a list of cases, found one mapping; "
                'write [{"input": ..., "expected": ...}, ...]'
            )
    if is_frame(cases):
        return Dataset.of(cases, parameters=reads)
    if not isinstance(cases, Iterable):
        raise ConfigError(
            f"cases: expected a file, a Dataset, Splits or a list of cases, found {shown(cases)}"
        )
    return Dataset.of([_as_case(case) for case in cases], parameters=reads)


def _as_case(case: Any) -> Any:
    """Return a pair of input and expected answer as a mapping; leave other cases to the reader."""
    if isinstance(case, tuple) and not hasattr(case, "_fields") and len(case) == _PAIR:
        return {"input": case[0], "expected": case[1]}
    return case


def metrics_of(metrics: Scoring) -> tuple[Metric, ...]:
    """Return metrics as objects: a name such as ``exact`` is that of a metric file.

    Raises:
        ConfigError, DataFormatError: there is no such metric, none is given, or a name is used
            twice.
    """
    several: Sequence[Any] = (
        metrics if isinstance(metrics, Sequence) and not isinstance(metrics, str) else [metrics]
    )
    checked = tuple(_metric_of(metric) for metric in several)
    check_metrics(checked)
    return checked


def _metric_of(metric: Any) -> Metric:
    if isinstance(metric, str):
        [named] = load_metrics([{"name": metric}])
        return named
    is_plain = callable(metric) and not isinstance(metric, type)
    return Python(function=metric) if is_plain and not hasattr(metric, "judge") else metric


def subject_of(prompt: Source, splits: Splits) -> Improvable:
    """Return what a run improves: texts become a prompt, everything else stays as it is.

    Raises:
        ConfigError: it cannot be improved, or a text names a value that the cases do not have.
    """
    match prompt:
        case str():
            return _prompt_of({"prompt": prompt}, splits)
        case PromptTemplate():
            return Prompt(prompt)
        case Prompt() | PromptSet() | Target() | Subject():
            return prompt
        case Mapping():
            return _prompt_of(prompt, splits)
    raise ConfigError(
        "prompt: expected a text, texts by name, a PromptTemplate, a Prompt, a Graph, Texts, a "
        f"BlackBox or a target of your own, found {shown(prompt)}"
    )


def asked_as(subject: Improvable) -> Prompt[object]:
    """Return the prompt that cases are bound to.

    A prompt takes the values of its placeholders, an agent the case, everything else the input.
    """
    if isinstance(subject, Prompt):
        return subject
    if not isinstance(subject, (PromptSet, Target)) and takes_cases(subject.prompt):
        return subject.prompt
    template = TextsPrompt.of({_INPUT: ""}, ns=NAMESPACE, key=_INPUT).template
    return TextsPrompt(template, takes_inputs=True)


def _prompt_of(texts: Mapping[str, str], splits: Splits) -> Prompt[object]:
    """Return a prompt that consists of texts, followed by the inputs that they do not name."""
    _check_texts(texts)
    used = {name for text in texts.values() for name in marker_names(text, BodySyntax.DOLLAR)}
    names = _names_of_values(splits, used)
    for name in sorted(used - {*names}):
        raise ConfigError(
            f"prompt: the text names `${name}`, which is not in the input of the cases"
            f"{did_you_mean(name, names)}; they have {listed(names) or 'none'}; write `$${name}` "
            "for the characters themselves"
        )
    unused = [name for name in names if name not in used]
    sections = [
        *(
            MarkdownSection(title="", key=key, template=_LITERAL_DOLLAR.sub("$$", text))
            for key, text in texts.items()
        ),
        *(
            MarkdownSection(
                # A single value needs no heading.
                title="" if len(names) == 1 else name.replace("_", " ").capitalize(),
                key=f"value-{place}",
                template=f"${name}",
                overridable=False,
            )
            for place, name in enumerate(unused, start=1)
        ),
    ]
    return Prompt(PromptTemplate[object](ns=NAMESPACE, key=next(iter(texts)), sections=sections))


def _check_texts(texts: Mapping[str, str]) -> None:
    if not texts:
        raise ConfigError("prompt: expected texts by name, found none")
    for key, text in texts.items():
        source: object = text
        if not isinstance(source, str) or not source.strip():
            raise ConfigError(f"prompt: {shown(key)}: expected a text, found {shown(text)}")
        check_key(key, "prompt: name of a text")


def _names_of_values(splits: Splits, used: Collection[str]) -> list[str]:
    """Return the names of the values of a case; an input that is no object is a single value."""
    cases = [case for part in splits.parts().values() for case in part]
    if "context" in used and len(used) == 2 and any(case.context for case in cases):
        return [*used]
    inputs = [case.input for case in cases]
    names = dict.fromkeys(name for value in inputs if isinstance(value, dict) for name in value)
    if names:
        return list(names)
    return [*used] if len(used) == 1 else [_INPUT]

"""A search in one call, from a prompt, cases and metrics to the result of the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from promptgraft import journal as journals
from promptgraft.adapters.abilities import needs_choices
from promptgraft.adapters.base import Ask, ProviderAdapter
from promptgraft.adapters.named import named_adapter
from promptgraft.algorithms import algorithm
from promptgraft.errors import ConfigError, DataFormatError, PromptDefinitionError
from promptgraft.evals import metrics as metric_kinds
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.metrics import load_metrics
from promptgraft.evals.metrics.judging import check_metrics
from promptgraft.evals.rows import advice_for
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Case, Judge, Metric
from promptgraft.ground.frames import Frame, is_frame
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.ground.strict.checks import COUNT
from promptgraft.ground.text import listed
from promptgraft.journal.base import Journal
from promptgraft.overrides.parts.body import BodySyntax, marker_names, spell
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.validation import check_key
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import compile_source, spelled_as_text
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import TextsPrompt, takes_cases
from promptgraft.runtime.session import EventBus
from promptgraft.search.cases import Judging, data_settings
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.job import Optimizer
from promptgraft.search.result import RunResult
from promptgraft.search.settings import DEFAULT_WORKERS, Limits, Size
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.prompts import Improvable, PromptSet


class OptimizeOptions(TypedDict, total=False):
    """Optional arguments of :func:`optimize`.

    Attributes:
        reflection_model: proposes new texts; by default the model that answers.
        rollout_budget: rollouts that the run may use, or ``light`` (the default), ``medium`` or
            ``heavy``.
        target_section_paths: sections that may change; by default all that are overridable.
        limits: limits that may end the run early, such as ``Limits(max_cost=5)``.
        seed: seed of all random choices; 0 by default.
        workers: concurrent rollouts, 4 by default; the result does not depend on it.
        overrides_store: the store to start from and to write the winner to; by default none.
        overrides_tag: the tag for both; ``latest`` by default.
        keep_anyway: also store a winner that is better only on the validation set.
        journal: records every answer, so that the run can be resumed; a journal, or the path of
            its file; by default none.
        event_bus: receives every event of the run; by default none.
    """

    reflection_model: str | ProviderAdapter | Ask
    rollout_budget: int | Size
    target_section_paths: Sequence[SectionPath]
    limits: Limits
    seed: int
    workers: int
    overrides_store: PromptOverridesStore
    overrides_tag: str
    keep_anyway: bool
    journal: Journal | str | os.PathLike[str]
    event_bus: EventBus


def optimize(
    prompt: Source,
    cases: Examples,
    metrics: Scoring,
    *,
    model: str | ProviderAdapter | Ask | None = None,
    **options: Unpack[OptimizeOptions],
) -> RunResult:
    """Improve a prompt on cases, and return the result: ``print(result)`` says what it is worth.

    The search learns from the training set and compares candidates on the validation set; the
    winner and the source are evaluated once on the test set, which the search never sees.
    ``GepaOptimizer`` does the same and has further settings.

    Args:
        prompt: what to improve. A text, or texts by name, such as ``"Say which team answers."``:
            ``$name`` stands for a value of the case, and so do ``{name}`` and ``{{ name }}``
            where it has that name; values that no text names follow the texts. The embedded model
            picks one of the answers that the cases expect, if they repeat. Or a
            ``PromptTemplate``, a ``Prompt`` with values bound that all cases share, a ``Graph``,
            or texts that code of yours uses: ``Texts``, a ``BlackBox``, a target.
        cases: a file of cases, a ``Dataset``, a table, a list of mappings like
            ``{"input": ..., "expected": ...}`` or of pairs ``(input, expected)``, which are split
            60 : 20 : 20; or ``Splits``. A text is bound to the only open placeholder, an object to
            the placeholders of its keys; functions are called with the input unchanged.
        metrics: score an answer: a name such as ``"exact"``, a metric, a function
            ``f(case, answer)``, or a list of these, whose mean is the score.
        model: answers, and proposes new texts: ``offline``, ``openai/MODEL`` and so on, an adapter,
            or a function that asks a model a text. It only proposes where code of yours answers;
            there `reflection_model` is enough.
        **options: rollout_budget: test calls that the run may make, or ``light`` (the default),
            ``medium`` or ``heavy``; reflection_model: proposes new texts instead of ``model``;
            limits: such as ``Limits(max_cost=5)``; overrides_store and overrides_tag: where a
            proven winner is stored; keep_anyway: store it without proof; journal: to resume the
            run; target_section_paths, seed, workers, event_bus: see :class:`OptimizeOptions`.

    Raises:
        ConfigError, DataFormatError: an argument is unusable, or cases, metrics and prompt do not
            fit together; found before the first call.
    """
    with _prepared(prompt, cases, metrics, model=model, options=options) as (optimizer, subject):
        return optimizer.optimize(subject)


async def aoptimize(
    prompt: Source,
    cases: Examples,
    metrics: Scoring,
    *,
    model: str | ProviderAdapter | Ask | None = None,
    **options: Unpack[OptimizeOptions],
) -> RunResult:
    """Improve a prompt as :func:`optimize` does, without blocking the running event loop."""
    with contextlib.ExitStack() as stack:
        prepared = _prepared(prompt, cases, metrics, model=model, options=options)
        # Files of cases may be large.
        optimizer, subject = await asyncio.to_thread(stack.enter_context, prepared)
        return await optimizer.aoptimize(subject)


@contextlib.contextmanager
def _prepared(
    prompt: Source,
    cases: Examples,
    metrics: Scoring,
    *,
    model: str | ProviderAdapter | Ask | None,
    options: OptimizeOptions,
) -> Iterator[tuple[Optimizer, Improvable]]:
    # `Unpack` alone is checked by type checkers only.
    option_names = list(OptimizeOptions.__annotations__)
    for name in options:
        if name not in option_names:
            raise ConfigError(
                f"optimize: there is no option `{name}`{did_you_mean(name, option_names)}; further "
                "settings are those of GepaConfig, for GepaOptimizer"
            )
    judging = Judging(splits=splits_of(cases, names_read(prompt)), metrics=metrics_of(metrics))
    writer = options.get("reflection_model")
    adapter = _answering(prompt, model, writer)
    labels = _labels(judging.splits) if needs_choices(adapter) else ()
    subject = subject_of(prompt, judging.splits, labels)
    make: Callable[..., RunConfig] = algorithm()
    config = make(
        **data_settings(asked_as(subject), judging),
        rollout_budget=options.get("rollout_budget", "light"),
        target_section_paths=options.get("target_section_paths", ()),
        limits=options.get("limits", Limits()),
        seed=options.get("seed", 0),
        keep_anyway=options.get("keep_anyway", False),
    )
    reflection = None if writer is None else named_adapter(writer, "reflection_model")
    workers = options.get("workers", DEFAULT_WORKERS)
    COUNT.hold("workers", workers)
    executor = ThreadPoolExecutor(workers)
    try:
        with _opened(options.get("journal")) as journal:
            context = OptimizationContext(
                adapter,
                reflection_adapter=reflection,
                overrides_store=options.get("overrides_store"),
                overrides_tag=options.get("overrides_tag", DEFAULT_TAG),
                executor=executor,
                journal=journal,
                event_bus=options.get("event_bus"),
            )
            yield Optimizer(context, config), subject
    finally:
        # A cancelled run does not wait for rollouts that hang.
        executor.shutdown(wait=False, cancel_futures=True)


def _answering(
    prompt: Source,
    model: str | ProviderAdapter | Ask | None,
    writer: str | ProviderAdapter | Ask | None,
) -> ProviderAdapter:
    """Return the model that answers, or the one that proposes where code answers."""
    if model is not None:
        return named_adapter(model, "model")
    if writer is not None and isinstance(prompt, Subject):
        return named_adapter(writer, "reflection_model")
    but = "" if writer is None else "; `reflection_model` only proposes new texts"
    raise ConfigError(f"optimize: expected `model`, such as `openai/MODEL`, which answers{but}")


def _opened(
    journal: Journal | str | os.PathLike[str] | None,
) -> AbstractContextManager[Journal | None]:
    """Return a journal for a ``with``, which closes it if only its path was given."""
    if isinstance(journal, (str, os.PathLike)):
        return journals.FileJournal(journal)  # loaded where it is wanted
    return nullcontext(journal)


Source = Improvable | PromptTemplate[object] | str | Mapping[str, str]
"""What can be improved: a text, texts by name, a template, a prompt, a graph, ``Texts``, ..."""

_Example = Case | Mapping[str, object] | tuple[object, object]
Examples = Splits | Dataset | Frame | Iterable[_Example] | str | Path
"""Cases: a file, a data set, a table, mappings, pairs of input and expected answer, or splits."""

Scoring = str | Metric | Judge | Sequence[str | Metric | Judge]
"""Metrics, by name, as objects, or as functions."""

NAMESPACE = "texts"
"""The namespace of prompts that are made of plain texts."""

_INPUT = "input"
_CASES_PER_LABEL = 2
_FILE = re.compile(r"\S+\.(md|txt|jinja2?|j2|prompty|prompt|json|ya?ml)")
_SYNTAXES = (BodySyntax.DOLLAR, BodySyntax.JINJA, BodySyntax.FORMAT)
# A dollar sign that begins no placeholder, such as that of `$5`; `$größe` is meant to be one.
_LITERAL_DOLLAR = re.compile(r"(?<!\$)\$(?!\$|\{?[^\W\d])")


def splits_of(cases: Examples, reads: Collection[str] | None = None) -> Splits:
    """Return cases as training, validation and test sets; the prompt reads values by ``reads``.

    Splits are returned unchanged; other cases are split 60 : 20 : 20 by the hashes of their ids.

    Raises:
        ConfigError: they are no cases.
        DataFormatError: they are faulty or too few; the error lists all faults.
    """
    splits = cases if isinstance(cases, Splits) else Splits.by_ratio(_dataset_of(cases, reads))
    if reads is not None:
        for part in splits.parts().values():
            if unsaid := [name for name in part.unsaid if name not in reads]:
                fault = advice_for(part.cases[0].origin).unsaid(unsaid)
                raise DataFormatError(f"{part.name}: {fault}")
    return splits


def names_read(prompt: Source) -> frozenset[str] | None:
    """Return the names of the values that texts, or one prompt, read from a case.

    None for code that takes what it needs.
    """
    match prompt:
        case str():
            return frozenset().union(*(marker_names(prompt, syntax) for syntax in _SYNTAXES))
        case PromptTemplate():
            return frozenset(name for _, section in prompt.walked for name in section.source.reads)
        case Prompt():
            return names_read(prompt.template)
        case Mapping():
            # Values that are no texts are refused later.
            return frozenset().union(*(names_read(text) or () for text in prompt.values()))
        case Subject() if takes_cases(prompt.prompt):
            return frozenset()
    return None


def _dataset_of(cases: Any, reads: Collection[str] | None) -> Dataset:
    match cases:
        case Dataset():
            return cases
        case str() | Path():
            return Dataset.load(cases, parameters=reads)
    if not (isinstance(cases, Iterable) or is_frame(cases)):
        raise ConfigError(
            f"cases: expected a file, a Dataset, Splits or a list of cases, found {shown(cases)}"
        )
    return Dataset.of(cases, parameters=reads)


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
    if callable(metric) and not isinstance(metric, type) and not hasattr(metric, "judge"):
        # Through the package, which imports it only now: most metrics have a name.
        return metric_kinds.Python(function=metric)
    checked: Metric = metric
    return checked


def _labels(splits: Splits) -> tuple[str, ...]:
    """Return the labels that the cases expect; none where expected answers hardly repeat."""
    # Test cases count too: which answers there are is part of the task, and not a secret.
    cases = [case for part in splits.parts().values() for case in part]
    labels = {case.expected for case in cases if isinstance(case.expected, str)}
    is_few = len(labels) * _CASES_PER_LABEL <= len(cases)
    is_each = all(isinstance(case.expected, str) for case in cases)
    return tuple(sorted(labels)) if is_few and is_each else ()


def subject_of(prompt: Source, splits: Splits, labels: Sequence[str] = ()) -> Improvable:
    """Return what a run improves: texts become a prompt, everything else stays as it is.

    ``labels`` are the answers that texts allow; none for any text.

    Raises:
        ConfigError: it cannot be improved, or a text names a value that the cases do not have.
    """
    match prompt:
        case str():
            return _prompt_of({"prompt": prompt}, splits, labels)
        case PromptTemplate():
            return Prompt(prompt)
        case Prompt() | PromptSet() | Target() | Subject():
            return prompt
        case Mapping():
            return _prompt_of(prompt, splits, labels)
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
    plays_turns = isinstance(subject, PromptSet) and subject.stand_in() is not None
    return TextsPrompt(template, takes_inputs=True, plays_turns=plays_turns)


def _prompt_of(texts: Mapping[str, str], splits: Splits, labels: Sequence[str]) -> Prompt[object]:
    """Return a prompt that consists of texts, followed by the inputs that they do not name."""
    _check_texts(texts)
    syntax = _syntax_of(texts, splits)
    used = {name for text in texts.values() for name in _names_in(text, syntax)}
    names = _names_of_values(splits, used)
    for name in sorted(used - {*names}):
        as_text = spelled_as_text(name, syntax)
        mend = f"; write `{as_text}` for the characters themselves" if as_text else ""
        raise ConfigError(
            f"prompt: the text names `{spell(name, syntax)}`, which is not in the input of the "
            f"cases{did_you_mean(name, names)}; they have {listed(names) or 'none'}"
            f"{mend}"
        )
    unused = [name for name in names if name not in used]
    sections = [
        *(
            MarkdownSection(title="", key=key, template=template, syntax=syntax)
            for key, template in _templates(texts, syntax).items()
        ),
        *(
            MarkdownSection(
                # A single value needs no heading.
                title="" if len(names) == 1 else name.replace("_", " ").capitalize(),
                key=f"value-{place}",
                template=spell(name, syntax),
                syntax=syntax,
                overridable=False,
            )
            for place, name in enumerate(unused, start=1)
        ),
    ]
    literal: Any = Literal  # its options are only known now
    output_type = literal[tuple(labels)] if labels else None
    template = PromptTemplate[object](
        ns=NAMESPACE, key=next(iter(texts)), sections=sections, output_type=output_type
    )
    hints = {
        name: hint
        for _, section in template.walked
        for name, hint, _ in section.source.lookalikes(section.template)
    }
    is_unnamed = unused == [_INPUT] and len(hints) == 1 and _INPUT not in hints
    for name in filter(hints.get, hints if is_unnamed else unused):
        more = ", or `$input` where the input goes" if is_unnamed else ""
        raise ConfigError(f"prompt: the text {hints[name]}{more}")
    return Prompt(template)


def _syntax_of(texts: Mapping[str, str], splits: Splits) -> BodySyntax:
    """Return how texts spell placeholders: the first way in which they name values of the cases.

    Where they name none, it is the usual way, for which faults have hints.
    """
    values = {*_names_of_values(splits, ())}
    for syntax in _SYNTAXES:
        if any(marker_names(text, syntax) & values for text in texts.values()):
            with contextlib.suppress(PromptDefinitionError):
                for text in _templates(texts, syntax).values():
                    compile_source(text, syntax, where="prompt")
                return syntax
    return _SYNTAXES[0]


def _names_in(text: str, syntax: BodySyntax) -> frozenset[str]:
    """Return the names that a text spells as placeholders."""
    if syntax is BodySyntax.FORMAT:  # in which doubled braces are characters
        text = text.replace("{{", "").replace("}}", "")
    return marker_names(text, syntax)


def _templates(texts: Mapping[str, str], syntax: BodySyntax) -> Mapping[str, str]:
    """Return texts as templates."""
    if syntax is not BodySyntax.DOLLAR:
        return texts
    return {key: _LITERAL_DOLLAR.sub("$$", text) for key, text in texts.items()}


def _check_texts(texts: Mapping[str, str]) -> None:
    if not texts:
        raise ConfigError("prompt: expected texts by name, found none")
    for key, text in texts.items():
        source: object = text
        if not isinstance(source, str) or not source.strip():
            raise ConfigError(f"prompt: {shown(key)}: expected a text, found {shown(text)}")
        if _FILE.fullmatch(source.strip()):
            mend = "read it, or name it in a project"
            raise ConfigError(f"prompt: expected a text, found the file {shown(text)}; {mend}")
        check_key(key, "prompt: name of a text")


def _names_of_values(splits: Splits, used: Collection[str]) -> list[str]:
    """Return the names of the values of a case; an input that is no object is a single value."""
    cases = [case for part in splits.parts().values() for case in part]
    inputs = [case.input for case in cases]
    names = dict.fromkeys(name for value in inputs if isinstance(value, dict) for name in value)
    if names:
        return list(names)
    if "context" in used and len(used) == 2 and any(case.context for case in cases):
        return [*used]
    return [*used] if len(used) == 1 else [_INPUT]

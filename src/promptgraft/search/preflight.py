"""The first stage of a run: everything that can be found wrong without a call."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.adapters.abilities import is_in_batches, missing_price
from promptgraft.adapters.base import ProviderAdapter, adapter_identity, is_nameless
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.dataset import asked_digest, question_digest
from promptgraft.evals.metrics.base import judges_of
from promptgraft.evals.metrics.judging import check_asked
from promptgraft.evals.types import Case
from promptgraft.ground.functions import without_address
from promptgraft.ground.serde import HexDigest, Json, did_you_mean, digest, unstructure
from promptgraft.ground.text import listed, model_in_words
from promptgraft.journal.base import Journal
from promptgraft.journal.records import Contents
from promptgraft.overrides.looks import record_of
from promptgraft.overrides.parts.descriptors import show_path
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.schema import schema_of
from promptgraft.prompt.template import Prompt, PromptTemplate, with_stored_overrides
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Budget, Watch
from promptgraft.search import targets
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.plan import RunPlan
from promptgraft.search.scores import AMOUNTS, SCORE
from promptgraft.search.settings import Limits, without_stop_files
from promptgraft.search.wear import Wear, wear_of
from promptgraft.targets.base import Target
from promptgraft.targets.judging import hidden_in, metrics_of, with_held_out
from promptgraft.targets.prompts import Improvable, PromptSet, prompts_of, without_stores
from promptgraft.targets.types import GepaExample

if TYPE_CHECKING:
    from promptgraft.search.teaching import Teaching

_logger = logging.getLogger("promptgraft")

_DIGITS, _SHORT = 16, 8
"""Digits of a digest that a look remembers, and that tells what of a run has changed."""


@attrs.frozen(kw_only=True)
class CheckedRun:
    """A run that nothing is known to be wrong with; its journal is still untouched.

    Attributes:
        context: the context, with the adapter of the subject.
        config: the settings, which name the parts that may change.
        target: what is improved.
        prompts: its prompts by ``namespace/key``, without stores.
        questions: the questions to the reflection model with the user's present overrides, which
            hold for the whole run.
        digests: SHA-256 of each example, by id.
        teaching: the questions to the teacher; None without one.
        models: the adapters that answer, propose and teach.
        deadline: when the run stops; None if it may go on for ever.
        budget: its limits on money and tokens.
        watch: budget and notices of the run.
        fingerprint: what decides the path of the run.
        plan: what it is expected to use; None if that has not been worked out.
    """

    context: OptimizationContext
    config: RunConfig
    target: Target
    prompts: Mapping[str, Prompt[object]] = attrs.field(hash=False)
    questions: Questions
    digests: Mapping[str, HexDigest]
    teaching: Teaching | None
    models: Sequence[ProviderAdapter]
    deadline: Deadline | None
    budget: Budget
    watch: Watch
    fingerprint: Mapping[str, Json] = attrs.field(hash=False)
    plan: RunPlan | None = None

    def suits(self, context: OptimizationContext) -> bool:
        """Return whether the checks hold in a context: it differs in what belongs to a process."""
        names = {field.name for field in attrs.fields(OptimizationContext)} - _OF_A_PROCESS
        return all(getattr(context, name) is getattr(self.context, name) for name in names)

    def within(self, context: OptimizationContext, limits: Limits) -> CheckedRun:
        """Return the run in a context that it suits, with these limits.

        Raises:
            ConfigError: a limit cannot be enforced, because a price is not known.
        """
        config = attrs.evolve(self.config, limits=limits)
        _check_prices(config, self.models)
        deadline, budget, watch = _accounts(context, limits)
        # A run directory adds a stop file, which changes nothing that a plan shows.
        is_as_planned = without_stop_files(limits) == without_stop_files(self.config.limits)
        return attrs.evolve(
            self,
            context=context,
            config=config,
            target=targets.watched(self.target, watch),
            deadline=deadline,
            budget=budget,
            watch=watch,
            plan=self.plan if is_as_planned else None,
        )

    @property
    def examples(self) -> tuple[GepaExample, ...]:
        """The examples of all sets."""
        return (*self.config.training_examples, *self.config.held_out)

    @property
    def is_in_batches(self) -> bool:
        """Whether a model of the run answers in provider batches."""
        return are_in_batches(self.models, self.config)

    def begin(self, journal: Journal) -> Mapping[str, Json]:
        """Bind a journal to the run, and return the journal's fingerprint.

        Raises:
            JournalMismatchError: the journal belongs to another run.
        """
        _warn_of_nameless(self.models)
        return journal.begin(
            self.fingerprint,
            contents=self._contents,
            reuse_scores=self.context.reuse_scores,
            translated=self.config.translated,
        )

    def check_journal(self, journal: Journal) -> None:
        """Raise what :meth:`begin` would raise; change nothing."""
        journal.check(
            self.fingerprint,
            contents=self._contents,
            reuse_scores=self.context.reuse_scores,
            translated=self.config.translated,
        )

    @property
    def _contents(self) -> Contents:
        """A short digest of each item by its name, for each digest of the fingerprint."""
        contents_by_kind: dict[str, dict[str, str]] = {
            "dataset": {
                f"example `{example.id}`": self.digests[example.id][:_SHORT]
                for example in self.config.training_examples
            },
            "meta_prompts": {
                f"meta-prompt `{key}`": targets.meta_prompt_digest(prompt)[:_SHORT]
                for key, prompt in self.questions.items()
            },
            "metrics": {
                f"metric `{metric.name}`": _short(without_address(repr(metric)))
                for metric in metrics_of(self.config.feedback_fn)
            },
        }
        for group, make in (("prompt", _parts_of), ("bound", _values_of)):
            contents_by_kind[group] = {}
            for address, prompt in self.prompts.items():
                place = f" of {address}" if len(self.prompts) > 1 else ""
                contents_by_kind[group] |= {f"{name}{place}": value for name, value in make(prompt)}
        return {name: items for name, items in contents_by_kind.items() if items}

    @property
    def run_id(self) -> str:
        """The identity of the run."""
        return digest(self.fingerprint)[:12]

    def wear_of(self, examples: Iterable[GepaExample]) -> Wear | None:
        """Return how often held-out examples have judged other runs; None if they are new."""
        record = record_of(self.context.overrides_store)
        digests = self.digests_of(examples)
        if record is None or not digests:
            return None
        return wear_of(digests, record.looks(), run=self.run_id)

    def digests_of(self, examples: Iterable[GepaExample]) -> tuple[str, ...]:
        """Return a short digest of what each example asks, whatever its id and its answer."""
        return tuple(
            (question_of(example) or self.digests[example.id])[:_DIGITS] for example in examples
        )


_OF_A_PROCESS = {
    "event_bus",
    "deadline",
    "cancellation",
    "pause",
    "executor",
    "journal",
    "reuse_scores",
    "remember_looks",
}
"""What of a context no check looks at."""


def _accounts(
    context: OptimizationContext, limits: Limits
) -> tuple[Deadline | None, Budget, Watch]:
    """Return deadline, budget and watch of a run that begins now."""
    deadline = context.run_deadline(limits.timeout, stop_files=limits.stop_files)
    budget = Budget(max_cost=limits.max_cost, max_tokens=limits.max_tokens)
    return (
        deadline,
        budget,
        Watch(budget=budget if budget.is_limited else None, notices=context.event_bus),
    )


def preflight(context: OptimizationContext, config: RunConfig, subject: Improvable) -> CheckedRun:
    """Check a run, and return it with everything that the checks have worked out.

    Calls no model and touches no journal, so a start that fails leaves nothing behind.

    Raises:
        UnknownPartError, ConfigError, BindingError, DataFormatError: settings, examples or
            adapters do not fit the prompt.
        StoreError: a store of overrides cannot be read.
    """
    context = context.around(subject)
    config = targets.targeted(config, subject).with_own_examples()
    held_out_ids = [example.id for example in config.held_out]
    judging = with_held_out(config.feedback_fn, held_out_ids)
    config = attrs.evolve(config, feedback_fn=judging)
    examples = (*config.training_examples, *config.held_out)
    digests = {example.id: targets.example_digest(example) for example in examples}
    deadline, budget, watch = _accounts(context, config.limits)
    target = targets.target_for(subject, config, context, watch)
    questions = _present_questions(target, config, context)
    target.check(examples)
    config.check_target(target)
    _check_metrics(config, context.adapter)
    _check_sets(config)
    teaching = None
    if context.teacher is not None:
        # Few runs have a teacher.
        from promptgraft.search.teaching import Teaching

        teaching = Teaching(context.teacher, config, digests)
    models = models_asked(context, subject)
    _check_prices(config, models)
    return CheckedRun(
        context=context,
        config=config,
        target=target,
        prompts=without_stores(prompts_of(subject)),
        questions=questions,
        digests=digests,
        teaching=teaching,
        models=models,
        deadline=deadline,
        budget=budget,
        watch=watch,
        fingerprint=targets.fingerprint_of(
            context, config, target.identity, examples=digests, questions=questions
        ),
    )


def models_asked(context: OptimizationContext, subject: Improvable) -> list[ProviderAdapter]:
    """Return the adapters that answer, propose and teach."""
    own_adapters = subject.adapters.values() if isinstance(subject, PromptSet) else ()
    teachers = context.teacher.models if context.teacher else ()
    adapters = (context.adapter, context.proposing_adapter, *own_adapters, *teachers)
    return [adapter for adapter in adapters if adapter is not None]


def are_in_batches(models: Iterable[ProviderAdapter], config: RunConfig) -> bool:
    """Return whether one of the models, or a judge, answers in provider batches."""
    return any(map(is_in_batches, (*models, *judges_of(metrics_of(config.feedback_fn)))))


def _present_questions(
    target: Target, config: RunConfig, context: OptimizationContext
) -> Questions:
    own_questions = [module.question for module in target.modules if module.question is not None]
    questions = {**config.questions, **{question.key: question for question in own_questions}}
    return {
        key: with_stored_overrides(template, context.overrides_store)
        for key, template in questions.items()
    }


def _check_metrics(config: RunConfig, adapter: ProviderAdapter | None) -> None:
    """Refuse metrics that do not fit the cases, and settings that name an unknown one."""
    metrics = metrics_of(config.feedback_fn)
    if not metrics:
        return
    check_asked(adapter, config.cases, metrics)
    hidden = hidden_in(config.feedback_fn)
    names = [metric.name for metric in metrics if metric.name not in hidden]
    names_known = [*names, SCORE, *AMOUNTS]
    for where, objectives in config.objectives_by_setting.items():
        for name in objectives:
            if name in hidden:
                raise ConfigError(
                    f"{where}: the metric `{name}` is hidden, and no search may pursue it; take "
                    "it out here, or leave `hidden` out of the metric"
                )
            if name not in names_known:
                raise ConfigError(
                    f"{where}: no metric is called `{name}`{did_you_mean(name, names)}; metrics: "
                    f"{listed(names)}"
                )


def _check_prices(config: RunConfig, models: Iterable[ProviderAdapter]) -> None:
    """Refuse a ``max_cost`` that cannot be enforced, because a price is not known."""
    if config.limits.max_cost is None:
        return
    judges = judges_of(metrics_of(config.feedback_fn))
    named = [*(("", adapter) for adapter in models), *(("the judge ", judge) for judge in judges)]
    for what, adapter in named:
        if missing := missing_price(adapter):
            model = model_in_words(adapter_identity(adapter))
            raise ConfigError(
                f"limits.max_cost: no price is known for {what}`{model}`, so the limit "
                f"cannot be enforced; {missing}"
            )


def _warn_of_nameless(models: Iterable[ProviderAdapter]) -> None:
    """Warn of adapters that a journal cannot distinguish."""
    for name in sorted({type(adapter).__name__ for adapter in models if is_nameless(adapter)}):
        _logger.warning(
            "adapter `%s` has no `identity`: the journal knows it by the name of its class, "
            "and reuses its answers whatever model it asks; give it one that names the model",
            name,
        )


def _check_sets(config: RunConfig) -> None:
    """Refuse examples of different sets with the same input, up to case and white space.

    Examples are compared by their case, or by their parameters if these are plain data.
    """
    validation, training = config.split
    sets = {
        "the validation set": validation,
        "the training set": training,
        "the held-out examples": config.held_out,
    }
    places: dict[HexDigest, tuple[str, str]] = {}
    for name, examples in sets.items():
        for example in examples:
            question = question_of(example)
            if question is None:
                continue
            elder, place = places.setdefault(question, (example.id, name))
            # Within a set a repeated input only weighs more.
            if place != name:
                raise ConfigError(
                    f"`{elder}` in {place} asks the same as `{example.id}` in {name}; what is "
                    "learned from one must not be judged by the other: leave one of them out"
                )


def question_of(example: GepaExample) -> HexDigest | None:
    """Return a digest of what an example asks; None if it is not known."""
    if isinstance(example.label, Case):
        return question_digest(example.label)
    # Nothing is bound: every such example would seem to ask the same.
    if not example.params:
        return None
    try:
        return asked_digest([unstructure(param) for param in example.params])
    except DataFormatError:
        return None


def _parts_of(prompt: Prompt[object]) -> Iterator[tuple[str, str]]:
    """Yield what ``template_digest`` covers, item by item."""
    template: PromptTemplate[object] = prompt.template
    descriptor, kind = template.descriptor, template.output_type
    for (path, section), part in zip(template.walked, descriptor.sections, strict=True):
        section_shown = [part.content_hash, section.title, section.summary]
        yield f"section `{show_path(path)}`", _short(section_shown)
    for tool in descriptor.tools:
        yield f"tool `{tool.name}`", tool.content_hash[:_SHORT]
        for number, call in enumerate(tool.examples, 1):
            yield f"example {number} of tool `{tool.name}`", call.content_hash[:_SHORT]
    for task in descriptor.task_examples:
        yield f"task example `{show_path(task.path)}`", task.content_hash[:_SHORT]
    for field in descriptor.output_fields:
        yield f"output field `{field.field}`", field.content_hash[:_SHORT]
    typed = None if kind in (None, str) else [options_of(kind), schema_of(kind)]
    yield "the output type", _short(typed)
    yield "a type of tools or answer", descriptor.interface_hash[:_SHORT]
    yield "the setting `repair`", str(template.repair)


def _values_of(prompt: Prompt[object]) -> Iterator[tuple[str, str]]:
    for param in prompt.params:
        for name, value in values_of(param).items():
            yield f"the value of `{name}`", _short(targets.plain_or_repr(value))


def _short(value: object) -> str:
    return digest(value)[:_SHORT]

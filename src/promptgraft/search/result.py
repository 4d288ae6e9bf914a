"""The result of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.frames import frame_of
from promptgraft.ground.notebook import Card, LongText, Shown, Table, first_rows
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.text import (
    change,
    counted,
    dollars,
    fewer_tokens,
    model_in_words,
    number_or_unknown,
    score,
)
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.overrides.parts import in_order
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.replacements import (
    OutputFieldOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts.task_example import TaskExampleOverride
from promptgraft.overrides.types import PromptOverride
from promptgraft.prompt.template import Prompt
from promptgraft.search.events import MutationRejected, Rewrites, RunEnded
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.scores import Score, mean_score, pick, weights_of
from promptgraft.search.stopping import StopReason, stop_sentence
from promptgraft.search.verdict import HeldOut, PassingSides, RunVerdict, verdict_of
from promptgraft.search.wear import Wear
from promptgraft.targets.part import PartOf, named_in
from promptgraft.targets.part_kinds import TaskExampleModule
from promptgraft.targets.types import Candidate

_MERGE = "merge"
_SHORTENING = "shortening"


@attrs.frozen
class GeneratedTaskExample:
    """A task example that the run wrote.

    Attributes:
        container_path: the section that holds it.
        key: its key there.
        objective: what it asks.
        outcome_json: its outcome as JSON.
        steps_json: its steps as JSON, ``[{"tool_name", "description", "input", "output"}]``.
    """

    container_path: SectionPath
    key: str
    objective: str
    outcome_json: str
    steps_json: str


@attrs.frozen(kw_only=True)
class RunResult(Shown):
    """The outcome of a run: a function of configuration, seed, data and answers only.

    Attributes:
        run_id: identity of the run.
        name: what was improved: ``namespace/key`` of a prompt.
        tag: the tag of the overrides.
        best_index: position of the best candidate on the validation set; 0 is the baseline,
            which wins a tie.
        baseline_pareto_mean: the mean of the baseline on the validation set.
        persisted: whether the winner was written to the override store.
        candidates: every member of the pool, the baseline first.
        objectives: for each candidate its mean in each objective, higher is better.
        frontier: positions of the candidates from which parents are chosen: they lead in a cell,
            and ``frontier_pruning`` has not dropped them.
        held_out: baseline and winner on the held-out examples; None if there are none.
        passing: pass rates of baseline and best candidate, and the means of metrics.
        remarks: what users should know before they trust the scores, a line each.
        wear: how often the held-out examples have judged runs, according to the record beside the
            store; None if they are new, or if no record is kept.
        taught: ids of the cases whose ``expected`` is a teacher's answer.
        scores_matrix: candidates times validation examples; None for unscored.
        pareto_ids: ids of the examples, the columns of ``scores_matrix``.
        means: for each candidate its mean on the validation set, or an estimate of it: see
            ``is_estimated``; None if nothing was scored.
        accepted_mutations: accepted proposals that changed instructions; one candidate may contain
            several of a step.
        accepted_example_mutations: accepted proposals that changed or wrote an example.
        kept_rewrites: the new texts of these proposals, each for one part.
        rejections: every rejected proposal with its reason.
        total_rollouts: rollouts used, including unscored ones.
        unscored_rollouts: rollouts without a score, because the provider failed.
        total_reflections: reflections used.
        ledger: calls, tokens, money and time by role and model, including those of earlier
            processes. ``total_rollouts`` counts answers; a rollout may take several calls.
        steps: steps begun.
        stop_reason: why the run ended.
        stop_detail: the same in words.
        sources: the prompts that were improved, without a store, by ``namespace/key``.
    """

    run_id: str
    name: str
    tag: str
    best_index: int
    baseline_pareto_mean: float | None
    persisted: bool
    candidates: tuple[Candidate, ...]
    scores_matrix: tuple[Sequence[Score], ...]
    objectives: tuple[Mapping[str, float], ...]
    frontier: tuple[int, ...]
    held_out: HeldOut | None
    passing: PassingSides
    remarks: tuple[str, ...] = ()
    wear: Wear | None = None
    taught: tuple[str, ...] = ()
    pareto_ids: tuple[str, ...]
    means: tuple[Score, ...]
    accepted_mutations: int
    accepted_example_mutations: int
    kept_rewrites: int
    rejections: tuple[MutationRejected, ...]
    total_rollouts: int
    unscored_rollouts: int
    total_reflections: int
    ledger: tuple[LedgerEntry, ...]
    steps: int
    stop_reason: StopReason
    stop_detail: str
    sources: Mapping[str, Prompt[object]] = attrs.field(factory=dict, eq=False, repr=False)

    @property
    def verdict(self) -> RunVerdict:
        """What may be claimed about the best candidate."""
        return verdict_of(self.best_index, self.held_out)

    @property
    def found_better(self) -> bool:
        """Whether a candidate is better than the baseline on the validation set."""
        return self.best_index != 0

    @property
    def improved(self) -> bool:
        """Whether held-out examples show that the best candidate is better than the baseline."""
        return self.verdict is RunVerdict.IMPROVED

    @property
    def best(self) -> Candidate:
        """The best candidate; the baseline if nothing beat it."""
        return self.candidates[self.best_index]

    @property
    def best_pareto_mean(self) -> float | None:
        """Mean of the best candidate on the validation set; None if nothing was scored."""
        return self.means[self.best_index]

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """For each candidate the positions of its parents; two for a merge."""
        return tuple(candidate.parents for candidate in self.candidates)

    @property
    def ancestry(self) -> tuple[int | None, ...]:
        """For each candidate the position of its (first) parent, None for the baseline."""
        return tuple(parents[0] if parents else None for parents in self.parents)

    @property
    def accepted_merges(self) -> int:
        """How many merges joined the pool."""
        return sum(len(parents) == 2 for parents in self.parents)

    @property
    def gains(self) -> Mapping[str, float]:
        """Gain in mean of each kind of change, summed over the winner's ancestry."""
        gains: dict[str, float] = {}
        position = self.best_index
        while (parent := self.ancestry[position]) is not None:
            candidate = self.candidates[position]
            after, before = self.means[position], self.means[parent]
            kinds = dict.fromkeys(module.kind for module in candidate.modules)
            kind = _SHORTENING if candidate.shortened else " + ".join(kinds) or _MERGE
            if after is not None and before is not None:
                gains[kind] = gains.get(kind, 0.0) + after - before
            position = parent
        return gains

    @property
    def best_overrides(self) -> Mapping[str, PromptOverride]:
        """The overrides of the best candidate, by prompt: ``namespace/key``."""
        return self.best.overrides

    @property
    def best_override(self) -> PromptOverride:
        """The override of the best candidate of a run with one prompt.

        Raises:
            ConfigError: the run had several prompts, or none; so do the properties below.
        """
        return self.best.override

    @property
    def prompts(self) -> Mapping[str, Prompt[object]]:
        """The prompts with the best candidate, ready to bind and render, by ``namespace/key``."""
        store = InMemoryPromptOverridesStore(self.best_overrides.values())
        return {
            address: attrs.evolve(source, overrides_store=store, overrides_tag=self.tag)
            for address, source in self.sources.items()
        }

    @property
    def prompt(self) -> Prompt[object]:
        """The prompt with the best candidate, ready to bind and render.

        Raises:
            ConfigError: the run had several prompts, or none.
        """
        if len(self.sources) != 1:
            raise ConfigError(
                f"prompt: expected a run over one prompt, found {len(self.sources)}; see `prompts`"
            )
        [prompt] = self.prompts.values()
        return prompt

    @property
    def text(self) -> str:
        """The text of :attr:`prompt`, with ``$name`` where the values of a case go."""
        return self.prompt.with_placeholders().text

    @property
    def best_section_overrides(self) -> Mapping[SectionPath, str]:
        """Bodies by section path; empty if nothing beat the baseline."""
        return self.best.section_bodies

    @property
    def best_tool_overrides(self) -> Mapping[str, ToolOverride]:
        """Overrides of tools, by name."""
        return self.best_override.tool_overrides

    @property
    def best_tool_example_overrides(self) -> Mapping[tuple[str, int], ToolExampleOverride]:
        """Overrides of tool examples, by tool and position."""
        return self.best.tool_example_overrides

    @property
    def best_task_example_overrides(self) -> Mapping[SectionPath, TaskExampleOverride]:
        """Overrides of task examples, by path."""
        return self.best.task_example_overrides

    @property
    def best_output_overrides(self) -> Mapping[str, OutputFieldOverride]:
        """Overrides of output fields, by field."""
        return self.best_override.output_overrides

    @property
    def generated_task_examples(self) -> tuple[GeneratedTaskExample, ...]:
        """The task examples that the run added."""
        # An example that the store had added, and the run changed, is among those added as well.
        changed = {module for candidate in self.candidates for module in candidate.modules}
        return tuple(
            GeneratedTaskExample(
                container_path=added.container_path,
                key=added.example_key,
                objective=added.objective,
                outcome_json=added.outcome_json,
                steps_json=added.steps_json,
            )
            for path, added in self.best_override.added_task_examples.items()
            if TaskExampleModule(path) not in changed
        )

    @property
    def shortened(self) -> float:
        """Approximate share of the winner's tokens that could be left out; 0 for none."""
        return self.best.shortened

    def pick(self, weights: Mapping[str, float] | str) -> int:
        """Return the position of the candidate with the highest weighted mean of objectives.

        Args:
            weights: by objective, such as ``{"score": 0.8, "tokens": 0.2}`` or the same as text,
                ``"score=0.8,tokens=0.2"``. The older candidate wins a tie.

        Raises:
            ConfigError: the run knows no such objective.
        """
        weighting = weights_of(weights)
        first = self.objectives[0]
        for name in weighting:
            if name not in first:
                raise ConfigError(
                    f"pick: the run has no objective `{name}`{did_you_mean(name, list(first))}; it "
                    f"has {', '.join(sorted(first)) or 'none'}"
                )
        return pick(self.objectives, weighting)

    def is_estimated(self, position: int) -> bool:
        """Return whether a candidate's mean is an estimate, because some examples have no score."""
        return self.means[position] is not None and None in self.scores_matrix[position]

    @property
    def rejected_by_reason(self) -> Mapping[str, int]:
        """How many proposals were rejected for each reason, the most frequent first."""
        return dict(Counter(str(rejection.reason) for rejection in self.rejections).most_common())

    @property
    def rewrites(self) -> Rewrites:
        """What became of the rewrites."""
        return Rewrites(
            kept=self.kept_rewrites, combined=self.accepted_merges, dropped=self.rejected_by_reason
        )

    @property
    def total_cost(self) -> Decimal | None:
        """US dollars; None if the price of a model is not known."""
        if any(entry.unpriced_calls for entry in self.ledger):
            return None
        return sum((entry.cost for entry in self.ledger), Decimal(0))

    @property
    def ended(self) -> RunEnded:
        """The event that ends a run."""
        return RunEnded(
            run_id=self.run_id,
            stop_reason=str(self.stop_reason),
            stop_detail=self.stop_detail,
            verdict=self.verdict,
            best=self.best_index,
            baseline_mean=self.baseline_pareto_mean,
            best_mean=self.best_pareto_mean,
            baseline_estimated=self.is_estimated(0),
            best_estimated=self.is_estimated(self.best_index),
            means=self.means,
            frontier=self.frontier,
            shortened=self.shortened,
            gains=self.gains,
            held_out=self.held_out,
            passing=self.passing,
            remarks=self.remarks,
            wear=self.wear,
            tag=self.tag,
            accepted=self.accepted_mutations + self.accepted_example_mutations,
            merges=self.accepted_merges,
            rejected=self.rejected_by_reason,
            candidates=len(self.candidates),
            steps=self.steps,
            rollouts=self.total_rollouts,
            unscored=self.unscored_rollouts,
            reflections=self.total_reflections,
            ledger=self.ledger,
            cost=self.total_cost,
        )

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the candidates as a ``pandas``, ``polars`` or ``pyarrow`` table, one per row.

        A row has the ``candidate``, its ``parents``, what was ``changed``, its ``mean`` on the
        validation set and whether that is ``estimated``, on how many ``cases`` it has a score and
        its ``mean_there``, whether it is the ``best`` and in the ``frontier``, and its mean in each
        objective as ``objective NAME``.

        Raises:
            ConfigError: the library is another one, or not installed.
        """
        rows = [
            {
                "candidate": place,
                "parents": list(candidate.parents),
                "changed": candidate.changed,
                "mean": self.means[place],
                "estimated": self.is_estimated(place),
                "cases": sum(score is not None for score in self.scores_matrix[place]),
                "mean_there": mean_score(self.scores_matrix[place]),
                "best": place == self.best_index,
                "frontier": place in self.frontier,
                **{f"objective {name}": mean for name, mean in self.objectives[place].items()},
            }
            for place, candidate in enumerate(self.candidates)
        ]
        return frame_of(rows, library)

    def __repr__(self) -> str:
        return (
            f"<RunResult {self.name}: {self.verdict}, {_change(self)} in validation, "
            f"{counted(self.total_rollouts, 'test call')}; "
            f"stopped: {stop_sentence(self.stop_reason, self.stop_detail)}>"
        )

    def _card(self) -> Card:
        return Card(
            title=self.name,
            lead=self.verdict,
            fields=(
                *_held_out(self),
                ("validation", f"{_change(self)} on {counted(len(self.pareto_ids), 'case')}"),
                ("changed", ", ".join(name for name, _ in _changed(self)) or "nothing"),
                *([("trimmed", fewer_tokens(self.shortened))] if self.shortened else []),
                (
                    "cost",
                    f"{_calls(self)}, {counted(self.total_reflections, 'reflection call')}",
                ),
                ("rewrites", str(self.rewrites)),
                ("stopped", stop_sentence(self.stop_reason, self.stop_detail)),
                ("stored", _stored(self)),
                ("run", self.run_id),
                *(("remark", remark) for remark in self.remarks),
            ),
            blocks=(
                _pool(self),
                *([_ledger(self)] if self.ledger else []),
                *(LongText(title=name, text=text) for name, text in _changed(self)),
            ),
        )


def _changed(result: RunResult) -> Iterator[tuple[str, str]]:
    """Yield name and text of each part that the winner changes."""
    changes, source = result.best.changes, result.candidates[0].changes
    modules = (module for candidate in result.candidates for module in candidate.modules)
    names = {(of.address, of.part.name): of.name for of in modules if isinstance(of, PartOf)}
    for address, address_changes in changes.items():
        if isinstance(address_changes, str):
            if address_changes != source[address]:
                yield address, address_changes
            continue
        prompt = result.sources.get(address)
        for entry in in_order(address_changes.entries()):
            name = entry.part if len(changes) == 1 else named_in(address, entry.part)
            written = entry if prompt is None else entry.as_written(prompt)
            yield names.get((address, entry.part), name), written.show()


def _calls(result: RunResult) -> str:
    return f"{dollars(result.total_cost)}, {counted(result.total_rollouts, 'test call')}"


def _stored(result: RunResult) -> str:
    if result.persisted:
        return f"tag `{result.tag}`"
    has_text = result.best_index and len(result.sources) == 1
    return "no; `result.text` is the whole new prompt" if has_text else "no"


def _change(result: RunResult) -> str:
    return change(
        result.baseline_pareto_mean,
        result.best_pareto_mean,
        estimated=(result.is_estimated(0), result.is_estimated(result.best_index)),
    )


def _held_out(result: RunResult) -> tuple[tuple[str, str], ...]:
    test = result.held_out
    if test is None:
        return ()
    if test.why_not:
        return (("test", f"not measured: {test.why_not}"),)
    means = change(test.baseline_mean, test.winner_mean)
    cases = f"{counted(len(test.ids), 'case')} never seen before{test.repeats}"
    rows = ("test", f"{means} on {cases}"), ("cases", test.gain.details if test.gain else "")
    lengths = (("answers", test.answer_length),) if test.answer_length else ()
    worn = (("test set", result.wear.line),) if result.wear and not result.wear.is_worn else ()
    return (*rows, *lengths, *worn)


def _pool(result: RunResult) -> Table:
    means = result.means
    ranked = sorted(
        range(len(means)), key=lambda place: (means[place] is None, -(means[place] or 0.0))
    )
    return first_rows(
        (
            (
                f"{place}",
                score(means[place], estimated=result.is_estimated(place)),
                *_of_candidate(result, place),
            )
            for place in ranked
        ),
        ("candidate", "validation", "from", "", "changed"),
    )


def _of_candidate(result: RunResult, place: int) -> tuple[str, ...]:
    candidate = result.candidates[place]
    marks = ["best"] if place == result.best_index else []
    marks += ["best on a case"] if place in result.frontier else []
    changed = candidate.changed if candidate.parents else "your prompt"
    return " + ".join(map(str, candidate.parents)), ", ".join(marks), changed


def _ledger(result: RunResult) -> Table:
    return Table(
        head=("", "calls", "tokens in", "out", "money", "seconds", "model"),
        rows=(
            (
                entry.role,
                f"{entry.calls:,}",
                *map(number_or_unknown, entry.tokens),
                dollars(None if entry.unpriced_calls else entry.cost),
                f"{entry.seconds:,.1f}",
                model_in_words(entry.model),
            )
            for entry in result.ledger
        ),
    )

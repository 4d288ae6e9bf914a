"""The settings of GEPA, and the arithmetic of its budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, get_args

import attrs

from promptgraft.algorithms.gepa.additions.base import ADDITIONS_KIND, GROUP, VERSIONS, Addition
from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.algorithms.gepa.reflect import (
    ATTEMPTS,
    MOST_MODULES_CHANGED,
    REFLECTION,
    questions_of,
)
from promptgraft.algorithms.gepa.select import Explored, MinibatchChoice, ModuleChoice
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict import checks
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.acceptance import Paired, most_rollouts
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig, is_foreign
from promptgraft.search.frontier import EXAMPLE_CELLS, FrontierPruning
from promptgraft.search.population import Pool
from promptgraft.search.reflection import reflection_params
from promptgraft.search.settings import Affordable, Settings, group
from promptgraft.search.validation import Full, Racing, Validation
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import Sizes, sent_chars
from promptgraft.targets.types import RolloutFeedback, RolloutRecord

_QUESTIONS_EACH = 1.2
"""Expected questions per module of a proposal, with repairs."""

Preset = Literal["lean", "paper"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "validation": Full(),
        "frontier_pruning": "redundant",
        "exploration": 1.0,
        "minibatches": "epochs",
        "minibatch_growth": 1,
        "reuse_rollouts": False,
        "published_question": True,
        "max_copied_words": 0,  # no guard
        "additions": (),
    },
    "lean": {
        "validation": Racing(),
        "frontier_pruning": "dominated",
        "exploration": 0.1,
        "minibatches": "teaching",
        "minibatch_growth": 4,
        "reuse_rollouts": True,
        "published_question": False,
        "max_copied_words": 8,
        # In the order in which they may take over a proposal.
        "additions": ("restart", "lines", "whole_prompt", "blame", "shorten"),
    },
}
"""What settings are where they are not given."""
CHOOSING = ("lines", "whole_prompt", "blame")
"""The additions of a preset that choose modules."""
_MOST_PROPOSALS = 1_000
"""Most proposals under way at a time; all of them begin before the first one ends."""

_VALIDATION = checks.check(
    "Full() or Racing()", lambda value: value if isinstance(value, Full | Racing) else None
)


def _by_preset(name: str) -> Any:
    """Return a default that depends on the field ``preset``."""
    # An unknown preset is refused by its validator, after this runs.
    lean = PRESETS["lean"]
    return attrs.Factory(lambda given: PRESETS.get(given.preset, lean)[name], takes_self=True)


@attrs.frozen(kw_only=True)
class Strategy(Settings):
    """How a search spends its rollouts.

    Attributes:
        preset: what the settings below and ``additions`` are where they are not given. ``lean``
            reached the highest scores with the fewest rollouts in ``benchmarks/search``; ``paper``
            is the published algorithm (Agrawal et al. 2025, arXiv:2507.19457).
        validation: on how much of the validation set candidates are evaluated: ``Full()``, or
            ``Racing()``, which drops those that do not keep up with the best one. Where it is not
            given, it is ``Full()`` if ``objectives`` need the means of all candidates.
        frontier_pruning: ``dominated``: a candidate that leads somewhere is no parent when
            another one dominates it; or ``redundant``: when others lead wherever it does, those
            with the lowest means first. ``dominated`` with ``Racing()``.
        exploration: share of the steps whose parent comes from the frontier, 0 to 1; in the
            others it is the best candidate.
        explored: what the parent comes from in those steps: ``frontier``: a candidate the more
            often, the more cells it leads in; ``leaders``: the same among the five members of the
            frontier with the highest means; or ``pool``: every candidate equally often.
        minibatches: ``random``; ``epochs``: all of the training set in random order, again and
            again in another one, so that every example is chosen before any is chosen again; or
            ``teaching``: seven of ten places go to examples on which the parent has failed
            before, beginning with those least often chosen for that; the others are epochs.
        minibatch_growth: how many times ``minibatch_size`` a minibatch may have. It grows as the
            parent gets better, so that as many failures can be expected in it as at first.
        reuse_rollouts: a parent's rollouts on the training set are not made again, except for
            one example of each minibatch.
        module_choice: which modules a reflection is about: ``turns``: one after the other; ``all``:
            every part in each step, of what is no single prompt up to four; or ``random``: any one
            of them. Given, it leaves out the additions of the preset that choose modules; not
            given, it is ``turns`` for what these leave to it.
        learn_from_perfect: reflect on minibatches too in which every answer is perfect; else such
            a step changes nothing.
        published_question: a reflection on a section asks in the words of the paper, and shows the
            section and the rollouts alone; else also the other parts and the expected answers.
        proposals_per_step: proposals that a step makes from its parent, each on a minibatch of its
            own; what is accepted of them is put together and evaluated as one. With more, an
            executor's workers are busy and a run takes less time; but proposals of a step do not
            know of each other.
        steps_at_once: steps that are under way at the same time; the same trade. At most 1,000
            proposals may be under way. The result depends on these two, and on neither time nor
            workers.
        max_merge_invocations: how often a merge may be attempted, with ``enable_merge``.
        merge_overlap: on how many validation examples both parents of a merge have a score, at the
            least.
    """

    settings_path: ClassVar[str] = "strategy."
    former_settings: ClassVar[Mapping[str, str]] = {
        "whole_prompt": "is an addition today: additions=[..., WholePrompt(share=...)]",
        "shorten_margin": "is an addition today: additions=[..., Shorten(margin=...)]",
        "history_top_k": "is an addition today: additions=[..., History(most=...)]",
        "reflections_per_module": "gained nothing and is gone: one reflection on a module sees all "
        "failures; leave it out",
    }

    preset: Preset = attrs.field(default="lean", validator=checks.one_of(*get_args(Preset)))
    validation: Validation | None = attrs.field(default=None, validator=_VALIDATION.or_none)
    frontier_pruning: FrontierPruning | None = attrs.field(
        default=None, validator=checks.one_of(*get_args(FrontierPruning)).or_none
    )
    exploration: float = attrs.field(default=_by_preset("exploration"), validator=checks.SHARE)
    explored: Explored = attrs.field(
        default="frontier", validator=checks.one_of(*get_args(Explored))
    )
    minibatches: MinibatchChoice = attrs.field(
        default=_by_preset("minibatches"), validator=checks.one_of(*get_args(MinibatchChoice))
    )
    minibatch_growth: int = attrs.field(
        default=_by_preset("minibatch_growth"), validator=checks.COUNT
    )
    reuse_rollouts: bool = attrs.field(default=_by_preset("reuse_rollouts"), validator=checks.FLAG)
    module_choice: ModuleChoice | None = attrs.field(
        default=None, validator=checks.one_of(*get_args(ModuleChoice)).or_none
    )
    learn_from_perfect: bool = attrs.field(default=False, validator=checks.FLAG)
    published_question: bool = attrs.field(
        default=_by_preset("published_question"), validator=checks.FLAG
    )
    proposals_per_step: int = attrs.field(default=1, validator=checks.COUNT)
    steps_at_once: int = attrs.field(default=1, validator=checks.COUNT)
    max_merge_invocations: int = attrs.field(default=5, validator=checks.integer(0))
    merge_overlap: int = attrs.field(default=0, validator=checks.integer(0))

    def __attrs_post_init__(self) -> None:
        at_once = self.proposals_per_step * self.steps_at_once
        if at_once > _MOST_PROPOSALS:
            raise ConfigError(
                f"strategy.steps_at_once: {self.steps_at_once} steps of {self.proposals_per_step} "
                f"proposals are {at_once} proposals at once, expected at most {_MOST_PROPOSALS}; "
                "lower one of them"
            )


def _as_addition(item: str | Addition) -> Addition:
    return GROUP.load(item)() if isinstance(item, str) else item


def _additions(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    """Check a sequence of additions; names must be known, and none may be there twice."""
    path = checks.path_of(owner, field)
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{path}: expected a list of additions, found {shown(value)}")
    names = []
    for item in value:
        if isinstance(item, type) or not isinstance(item, str | Addition):
            raise ConfigError(
                f"{path}: expected the name of an addition or an object of its class, "
                f"found {shown(item)}"
            )
        if not isinstance(item, str) and not hasattr(item, "name"):
            raise ConfigError(f"{path}: `{type(item).__name__}` has no `name`; give the class one")
        names.append(_as_addition(item).name)
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}: `{name}` is named twice")


@attrs.frozen(kw_only=True)
class GepaSettings(RunConfig):
    """The settings of a GEPA run, besides those of :class:`promptgraft.search.config.RunConfig`.

    Attributes:
        minibatch_size: number of training examples that a child is first evaluated on, at least 1.
        enable_merge: whether to merge candidates that are good at different examples.
        example_mutation_rate: share of the steps that change an example rather than an
            instruction, 0 to 1, if there are both.
        strategy: how the search spends its rollouts.
        additions: what the search does besides the published algorithm: names (``lines``,
            ``whole_prompt``, ``blame``, ``history``, ``restart``, ``shorten``, or those of other
            packages) or objects such as ``Restart(after=5)``; by default those of the preset.

    Raises:
        ConfigError: naming the setting by its path, what was expected and what was found.
    """

    algorithm: ClassVar[str] = "gepa"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = META_PROMPTS
    former_settings: ClassVar[Mapping[str, str]] = {
        "escape_dollar_signs": "is not needed: in a new text every `$` is literal, except in a "
        "placeholder of the source; leave it out",
        "d_feedback": "is what remains of `training_examples` after the first `pareto_set_size`; "
        "set these two",
        "d_pareto": "is the first `pareto_set_size` of `training_examples`; set these two",
        "optimizer_config": "is an argument of GepaOptimizer; leave it out here",
    }

    minibatch_size: int = attrs.field(default=6, validator=checks.COUNT)
    enable_merge: bool = attrs.field(default=False, validator=checks.FLAG)
    example_mutation_rate: float = attrs.field(default=0.3, validator=checks.SHARE)
    strategy: Strategy = attrs.field(factory=Strategy, validator=group(Strategy))
    additions: Sequence[str | Addition] | None = attrs.field(default=None, validator=_additions)

    @property
    def validation(self) -> Validation:
        """How much of the validation set candidates are evaluated on."""
        if self.strategy.validation is not None:
            return self.strategy.validation
        return Full() if self._needs_means else self._preset["validation"]

    @property
    def frontier_pruning(self) -> FrontierPruning:
        """Which leaders cannot be parents; pruning by means requires exact means of all."""
        if self.strategy.frontier_pruning is not None:
            return self.strategy.frontier_pruning
        is_full = isinstance(self.validation, Full)
        return self._preset["frontier_pruning"] if is_full else "dominated"

    @property
    def module_choice(self) -> ModuleChoice:
        """Which modules a reflection is about, where no addition chooses them."""
        return self.strategy.module_choice or "turns"

    # Budgets are searched by bisection, which asks for these many times.
    @cached_property
    def used_additions(self) -> tuple[Addition, ...]:
        """The additions of the search, each with its settings."""
        names: Sequence[str | Addition] = self._preset["additions"]
        if self.strategy.module_choice is not None:
            names = [name for name in names if name not in CHOOSING]
        return tuple(map(_as_addition, names if self.additions is None else self.additions))

    @property
    def copied_words(self) -> int:
        """How many consecutive words of an answer an instruction may not contain; 0: no guard."""
        guards_words = self.guards.max_copied_words
        return self._preset["max_copied_words"] if guards_words is None else guards_words

    @property
    def _preset(self) -> Mapping[str, Any]:
        return PRESETS[self.strategy.preset]

    @property
    def _needs_means(self) -> bool:
        """Whether the objectives need the means of all candidates."""
        objectives = self.objectives
        return bool(objectives.pick) or objectives.frontier_type not in EXAMPLE_CELLS

    @property
    def smaller_steps(self) -> str:
        several = " or strategy.proposals_per_step" if self.strategy.proposals_per_step > 1 else ""
        return f" or minibatch_size{several}"

    def check(self) -> None:
        if isinstance(self.acceptance, Paired):
            answers = self.batch_size * (1 + self.acceptance.max_repeats)
            self.acceptance.check_power(answers, "raise minibatch_size or max_repeats")
        self._check_validation()

    def _check_validation(self) -> None:
        """Refuse to combine races with settings that need the means of all candidates."""
        if isinstance(self.validation, Full):
            return
        if self.objectives.pick:
            raise ConfigError(
                "objectives.pick: expected none with strategy.validation=Racing(), which evaluates "
                "few candidates on everything; give the same weights as `objectives.weights` "
                "instead, or leave strategy.validation out"
            )
        if self._needs_means:
            raise ConfigError(
                "objectives.frontier_type: expected 'instance' or 'cartesian' with "
                f"strategy.validation=Racing(), found '{self.objectives.frontier_type}'; leave "
                "strategy.validation out to use it"
            )
        if self.frontier_pruning != "dominated":
            raise ConfigError(
                "strategy.frontier_pruning: expected 'dominated' with strategy.validation="
                "Racing(), which evaluates candidates on different examples, found "
                f"'{self.frontier_pruning}'; give strategy.validation=Full() to use it"
            )

    @property
    def author(self) -> str:
        names = [f"addition `{use.name}`" for use in self.used_additions if is_foreign(use)]
        return super().author or " or ".join(names)

    @property
    def decisive(self) -> Mapping[str, Json]:
        of_strategy = attrs.asdict(self.strategy, recurse=False)
        del of_strategy["preset"]  # only says what the others are
        additions: list[Json] = [[use.name, dict(use.settings)] for use in self.used_additions]
        versions = {name: above for name, above in self._versions.items() if above > 1}
        return {
            "minibatch_size": self.minibatch_size,
            "enable_merge": self.enable_merge,
            "example_mutation_rate": self.example_mutation_rate,
            **{f"strategy.{name}": value for name, value in of_strategy.items()},
            "strategy.module_choice": self.module_choice,
            "strategy.validation": repr(self.validation),
            "strategy.frontier_pruning": self.frontier_pruning,
            "guards.max_copied_words": self.copied_words,
            "additions": additions,
            **({VERSIONS: versions} if versions else {}),
            **REFLECTION,
        }

    @classmethod
    def kinds(cls) -> Mapping[str, checks.Kind[object]]:
        return {"additions": ADDITIONS_KIND}

    @classmethod
    def modernized(cls, written: Mapping[str, Json]) -> tuple[Mapping[str, Json], Sequence[str]]:
        from promptgraft.algorithms.gepa import earlier

        return earlier.with_additions(written)

    def translated(self, recorded: Mapping[str, Json]) -> Mapping[str, Json]:
        # Imported here, because only a recorded run has a past.
        from promptgraft.algorithms.gepa import earlier

        return earlier.translated(recorded, self._versions, self.questions)

    @property
    def _versions(self) -> Mapping[str, int]:
        examples = bool(self.target_tool_examples or self.target_task_examples)
        examples |= self.enable_example_generation
        uses = self.used_additions
        return {use.name: examples * use.example_version or use.version for use in uses}

    def pool(self) -> Pool:
        kind, ranks = self.objectives.frontier_type, self.validation.ranks
        return Pool(kind, pruning=self.frontier_pruning, ranks=ranks)

    def budget_of(self, proposals: int) -> int:
        # An upper bound: fewer proposals are accepted, and races stop early.
        # So the budget of a size does not depend on the strategy.
        entries = (1 + proposals + self._merges(proposals)) * self.pareto_set_size
        return entries + proposals * self.trial_size + self.following_size

    def rollouts_for(self, proposals: int) -> int:
        # There is nothing to merge before the second one; a merge after the last is not covered.
        needed = self._needed(proposals, self.largest_batch)
        if checks.LARGEST_AMOUNT - self._reserve_at(checks.LARGEST_AMOUNT) < needed:
            raise ConfigError(
                f"additions: what they reserve leaves of no budget enough for {proposals} "
                "proposals; let `reserve` leave a share of all that is above `least`"
            )
        budget = needed  # what is reserved grows with it, but less
        while (larger := needed + self._reserve_at(budget)) > budget:
            budget = larger
        return budget

    def _needed(self, proposals: int, batch: int) -> int:
        """Return what proposals need beside reserves, with ``batch`` examples in later steps."""
        each = self.strategy.proposals_per_step
        entries = self.entry_size(-(-proposals // each), merges=self._merges(proposals))
        grown = max(0, proposals - each)  # minibatches grow from the second step on
        later = grown * most_rollouts(self.acceptance, batch)
        trials = (proposals - grown) * self.trial_size + later
        return self.baseline_size + trials + entries + self._finals + self.following_size

    def pays_for(self, rollouts: int) -> Affordable:
        # By the rules of the loop, a step begins only if the budget covers all of it. A refused
        # child does not use validation; a reply without a usable text uses the parent's part only.
        each, available = self.strategy.proposals_per_step, rollouts - self._reserve_at(rollouts)
        if available < self.least_budget:
            return Affordable(if_accepted=0, if_refused=0, steps=0)
        counts = range(each, each * rollouts + 1, each)
        accepted, usual = (
            bisect_right(counts, available, key=partial(self._needed, batch=batch))
            for batch in (self.largest_batch, max(self.batch_size, 2 * self.largest_batch // 3))
        )
        for_parent = 1 if self.strategy.reuse_rollouts else self.batch_size
        # If little is accepted, additions need little and return the rest to the search.
        most = rollouts - self.least_budget
        return Affordable(
            if_accepted=each * accepted,
            if_usual=each * usual,
            if_refused=each * (most // (each * (for_parent + self.batch_size)) + 1),
            steps=most // (each * for_parent) + 1,
        )

    def most_questions(self, rollouts: int, *, modules: int = 1, steps: int = 1) -> int:
        proposals = self.strategy.proposals_per_step * self.pays_for(rollouts).steps
        return proposals * self.reflections_per_proposal

    def expected_questions(self, proposals: int, modules: int) -> int:
        each = float(modules if self.module_choice == "all" else 1)
        for addition in reversed(self.used_additions):  # the first takes its share last
            each = addition.expected_questions(modules, each)
        return round(proposals * _QUESTIONS_EACH * each)

    def question_chars(self, target: Target, questions: Questions, sizes: Sizes) -> Sequence[int]:
        baseline, refused = target.baseline(), "x" * sizes.refused
        record = RolloutRecord(
            example_id="example",
            inputs_repr="x" * sizes.input,
            output_repr="x" * sizes.answer,
            tool_trace_repr="x" * sizes.trace,
            feedback=RolloutFeedback(score=1 / 3, feedback="x" * sizes.feedback),
        )
        all_questions = questions_of(questions, as_published=self.strategy.published_question)
        described = [target.describe(module, baseline) for module in target.modules]
        # Only the longest question repeats a refused reply, and minibatches that have grown.
        count = self.largest_batch if sizes.refused else self.batch_size
        rendered_prompts = (
            all_questions[module.meta_prompt].bind(
                reflection_params(module, [record] * count, refused=(refused, refused))
            )
            for module in described
        )
        return [sent_chars(question.render()) for question in rendered_prompts]

    def _merges(self, proposals: int) -> int:
        most = self.strategy.max_merge_invocations if self.enable_merge else 0
        return min(most, max(0, proposals - 2))

    @property
    def batch_size(self) -> int:
        """Number of training examples that a child is first evaluated on."""
        return min(self.minibatch_size, self.training_size)

    @property
    def largest_batch(self) -> int:
        """Number of training examples of a minibatch that has grown as far as it may."""
        return min(self.strategy.minibatch_growth * self.batch_size, self.training_size)

    def warnings(self, target: Target) -> Iterator[str]:
        if self.batch_size != self.minibatch_size:
            yield (
                f"minibatch_size: {self.minibatch_size} is more than the {self.batch_size} "
                "training examples, so every step takes all of them; lower it"
            )
        if self.enable_merge and len(target.modules) == 1:
            yield (
                "enable_merge: merging combines changes of different parts, and "
                f"`{target.modules[0].name}` is the only one that may change"
            )

    @property
    def trial_size(self) -> int:
        """Rollouts of parent and child on a minibatch that has not grown, all repeats included."""
        return most_rollouts(self.acceptance, self.batch_size)

    def entry_size(self, candidates: int, *, merges: int = 0) -> int:
        """Return the rollouts on the validation set that candidates and merges can use."""
        return self.validation.entries(
            self.pareto_set_size,
            self._critical_size,
            candidates,
            merges=merges,
            each=self.strategy.proposals_per_step,
        )

    @property
    def step_size(self) -> int:
        return self.strategy.proposals_per_step * self.trial_size + self.entry_size(1)

    @property
    def baseline_size(self) -> int:
        return self.validation.baseline(self.pareto_set_size, self._critical_size)

    @property
    def finals_size(self) -> int:
        """Rollouts that are kept for additions, and for baseline and finalists."""
        return self._finals + self._reserve_at(self.budget)

    def _reserve_at(self, rollouts: int) -> int:
        """Return what so many rollouts keep for additions."""
        least, validation = self.least_budget, self.pareto_set_size
        uses = self.used_additions
        return sum(use.reserve(rollouts, least=least, validation=validation) for use in uses)

    @cached_property
    def least_budget(self) -> int:
        return self.baseline_size + self.step_size + self._finals + self.following_size

    @property
    def _finals(self) -> int:
        return self.validation.finals(self.pareto_set_size, self._critical_size)

    @cached_property
    def _critical_size(self) -> int:
        # A plan asks for it a thousand times.
        return sum(example.critical for example in self.split[0])

    @property
    def questions_at_once(self) -> int:
        proposals = self.strategy.proposals_per_step * self.strategy.steps_at_once
        return proposals * self.most_together

    @property
    def reflections_per_proposal(self) -> int:
        """Reflections that a proposal can use, repairs of replies included."""
        return ATTEMPTS * self.most_together

    @property
    def most_together(self) -> int:
        """Parts that a proposal changes at most."""
        asks_several = any(addition.asks_several for addition in self.used_additions)
        if self.module_choice != "all" and not asks_several:
            return 1
        # A target that is no prompt says itself what may change.
        if not self.names_targets:
            return MOST_MODULES_CHANGED
        further = self.targets.summaries, self.targets.tools, self.targets.output_fields
        named = [self.target_section_paths, *further]
        if self.module_choice == "all":
            examples = self.target_tool_examples, self.target_task_examples
            count = sum(map(len, (*named, *examples))) + bool(self.targets.visibility)
            return max(MOST_MODULES_CHANGED, count)
        return min(max(1, sum(map(len, named))), MOST_MODULES_CHANGED)

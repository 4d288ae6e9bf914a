"""The settings of GEPA, and the arithmetic of its budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

import attrs

from promptgraft.algorithms.gepa.policies import (
    ATTEMPTS,
    COPIED_WORDS,
    MOST_AT_ONCE,
    MOST_FOR_LINES,
    NEVER_FOR_LINES,
    PRUNING,
    SHORTENING,
    VALIDATION,
    Strategy,
    parts_of,
)
from promptgraft.errors import ConfigError
from promptgraft.search.acceptance import Paired
from promptgraft.search.config import RunConfig
from promptgraft.search.frontier import EXAMPLE_CELLS, FrontierPruning
from promptgraft.search.population import Pool
from promptgraft.search.settings import Affordable
from promptgraft.search.validation import Full, Validation
from promptgraft.serde import Json
from promptgraft.strict.checks import COUNT, FLAG, SHARE, instance

_QUESTIONS_EACH = 1.2
"""Expected questions per module of a proposal, with repairs and shared failures."""


@attrs.frozen(kw_only=True)
class GepaSettings(RunConfig):
    """The settings of a GEPA run, besides those of :class:`promptgraft.search.config.RunConfig`.

    Attributes:
        minibatch_size: number of training examples that a child is first evaluated on, at least 1.
        enable_merge: whether to merge candidates that are good at different examples.
        example_mutation_rate: share of the steps that change an example rather than an
            instruction, 0 to 1, if there are both.
        strategy: how the search spends its rollouts.

    Raises:
        ConfigError: naming the setting by its path, what was expected and what was found.
    """

    minibatch_size: int = attrs.field(default=6, validator=COUNT)
    enable_merge: bool = attrs.field(default=False, validator=FLAG)
    example_mutation_rate: float = attrs.field(default=0.3, validator=SHARE)
    strategy: Strategy = attrs.field(factory=Strategy, validator=instance(Strategy))

    @property
    def validation(self) -> Validation:
        """How much of the validation set candidates are evaluated on."""
        if self.strategy.validation is not None:
            return self.strategy.validation
        return Full() if self._needs_means else VALIDATION[self.strategy.preset]

    @property
    def frontier_pruning(self) -> FrontierPruning:
        """Which leaders cannot be parents; pruning by means requires exact means of all."""
        if self.strategy.frontier_pruning is not None:
            return self.strategy.frontier_pruning
        return PRUNING[self.strategy.preset] if isinstance(self.validation, Full) else "dominated"

    @property
    def copied_words(self) -> int:
        """How many consecutive words of an answer an instruction may not contain; 0: no guard."""
        given = self.guards.max_copied_words
        return COPIED_WORDS[self.strategy.preset] if given is None else given

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
    def decisive(self) -> Mapping[str, Json]:
        """The settings that decide the path of a run, each by its path."""
        of_strategy = attrs.asdict(self.strategy, recurse=False)
        del of_strategy["preset"]  # only says what the others are
        return {
            "minibatch_size": self.minibatch_size,
            "enable_merge": self.enable_merge,
            "example_mutation_rate": self.example_mutation_rate,
            **{f"strategy.{name}": value for name, value in of_strategy.items()},
            "strategy.validation": repr(self.validation),
            "strategy.frontier_pruning": self.frontier_pruning,
            "guards.max_copied_words": self.copied_words,
        }

    def pool(self) -> Pool:
        kind, ranks = self.objectives.frontier_type, self.validation.ranks
        return Pool(kind, pruning=self.frontier_pruning, ranks=ranks)

    def budget_of(self, proposals: int) -> int:
        """Return the rollouts for so many proposals if each were evaluated on all of validation.

        In practice fewer are accepted, and races stop early; what that saves pays for further
        proposals. So the budget of an ``auto`` size does not depend on the strategy.
        """
        entries = (1 + proposals + self._merges(proposals)) * self.pareto_set_size
        return entries + proposals * self.trial_size + self.following_size

    def rollouts_for(self, proposals: int) -> int:
        """Return the fewest rollouts that cover so many accepted proposals, merges included.

        There is nothing to merge before the second one; a merge after the last is not covered.
        """
        steps = -(-proposals // self.strategy.proposals_per_step)
        entries = self.entry_size(steps, merges=self._merges(proposals))
        ends = self._finals + self.following_size
        needed = self.baseline_size + proposals * self.trial_size + entries + ends
        # Solve for the budget: the reserve for shortening grows with it.
        more = max(0, needed - self._all_for_search - 1) // (SHORTENING - 1)
        return needed + min(more, self._most_for_shortening)

    def pays_for(self, rollouts: int) -> Affordable:
        """Return what ``rollouts`` cover, by the rules of the loop.

        The baseline is evaluated first, and the end of the run is reserved. A step begins only if
        the budget covers all of it: per proposal a minibatch for the parent and one for the
        child, both again for every repeat, and part of the validation set. A refused child does
        not use the last of these; a reply without a usable text uses only the first.
        """
        each = self.strategy.proposals_per_step
        ends = self._finals + self.following_size + self._shortening_at(rollouts)
        left = rollouts - self.baseline_size - ends
        if left < self.step_size:
            return Affordable(if_accepted=0, if_refused=0, steps=0)
        accepted = bisect_right(
            range(1, rollouts + 1), rollouts, key=lambda count: self.rollouts_for(each * count)
        )
        for_parent = 1 if self.strategy.reuse_rollouts else self.batch_size
        # If little is accepted, shortening needs little and returns the rest to the search.
        most = left + self._shortening_at(rollouts) - self.step_size
        return Affordable(
            if_accepted=each * accepted,
            if_refused=each * (most // (each * (for_parent + self.batch_size)) + 1),
            steps=most // (each * for_parent) + 1,
        )

    def most_questions(self, rollouts: int, *, modules: int = 1, steps: int = 1) -> int:
        """Return the most reflections that rollouts can lead to; failures are shared in half."""
        del modules, steps
        proposals = self.strategy.proposals_per_step * self.pays_for(rollouts).steps
        alone = proposals // 2
        shared = (proposals - alone) * self.reflections_per_proposal
        return shared + alone * self._reflections_if_not_shared

    def expected_questions(self, proposals: int, modules: int) -> int:
        if self.strategy.module_choice == "all":
            return round(proposals * _QUESTIONS_EACH * modules)
        together = min(modules, MOST_AT_ONCE) if self.strategy.module_choice == "blamed" else 1
        # Most steps ask one question about all parts. In half of the others the blamed parts, on
        # average half of them, are changed together with a question each.
        apart = 1 - self.strategy.whole_prompt if together > 1 else 1
        return round(proposals * _QUESTIONS_EACH * (1 + apart * (together - 1) / 4))

    def _merges(self, proposals: int) -> int:
        most = self.strategy.max_merge_invocations if self.enable_merge else 0
        return min(most, max(0, proposals - 2))

    @property
    def batch_size(self) -> int:
        """Number of training examples that a child is first evaluated on."""
        return min(self.minibatch_size, len(self.training_examples) - self.pareto_set_size)

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.batch_size == self.minibatch_size:
            return ()
        said = f"{self.minibatch_size} is more than the {self.batch_size} training examples"
        return (f"minibatch_size: {said}, so every step takes all of them; lower it",)

    @property
    def whole_share(self) -> float:
        """Share of the steps in which one question may be on all parts."""
        return self.strategy.whole_prompt if self.strategy.module_choice == "blamed" else 0.0

    @property
    def relocates_lines(self) -> bool:
        """Whether lines that do not help are tried in other parts."""
        # Two answers or three decide on these, too few for a test that asks for more.
        return self.whole_share > 0 and not self.acceptance.max_repeats

    @property
    def trial_size(self) -> int:
        """Rollouts of parent and child on a minibatch, all repeats included."""
        return 2 * self.batch_size * (1 + self.acceptance.max_repeats)

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
        """Rollouts that are kept for shortening, and for baseline and finalists."""
        return self._finals + self.shortening_size

    @property
    def shortening_size(self) -> int:
        """Rollouts that are kept for shortening the best candidate."""
        return self._shortening_at(self.budget)

    def _shortening_at(self, rollouts: int) -> int:
        """Return what so many rollouts keep for shortening: a share, nothing if they are few."""
        return min(max(0, rollouts - self._all_for_search) // SHORTENING, self._most_for_shortening)

    @property
    def _all_for_search(self) -> int:
        return max(self.least_budget, NEVER_FOR_LINES)

    @property
    def _most_for_shortening(self) -> int:
        never = self.strategy.shorten_margin == "off"
        return 0 if never else MOST_FOR_LINES + self.pareto_set_size

    @property
    def least_budget(self) -> int:
        return self.baseline_size + self.step_size + self._finals + self.following_size

    @property
    def _finals(self) -> int:
        return self.validation.finals(self.pareto_set_size, self._critical_size)

    @property
    def _critical_size(self) -> int:
        return sum(example.critical for example in self.split[0])

    @property
    def questions_at_once(self) -> int:
        proposals = self.strategy.proposals_per_step * self.strategy.steps_at_once
        return proposals * (self.reflections_per_proposal // ATTEMPTS)

    @property
    def reflections_per_proposal(self) -> int:
        """Reflections that a proposal can use, repairs of replies included."""
        shared = parts_of(self.batch_size, self.strategy.reflections_per_module)
        return shared * self._reflections_if_not_shared

    @property
    def _reflections_if_not_shared(self) -> int:
        return ATTEMPTS * self.most_together

    @property
    def most_together(self) -> int:
        """Parts that a proposal changes at most."""
        if self.strategy.module_choice in ("turns", "random"):
            return 1
        # A target that is no prompt says itself what may change.
        if not self.names_targets:
            return MOST_AT_ONCE
        further = self.targets.summaries, self.targets.tools, self.targets.output_fields
        named = [self.target_section_paths, *further]
        if self.strategy.module_choice == "all":
            examples = self.target_tool_examples, self.target_task_examples
            return max(MOST_AT_ONCE, sum(map(len, (*named, *examples))))
        return min(max(1, sum(map(len, named))), MOST_AT_ONCE)

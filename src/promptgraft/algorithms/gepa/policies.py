"""How a GEPA search spends its rollouts: strategies and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import attrs

from promptgraft.errors import ConfigError
from promptgraft.search.frontier import FrontierPruning
from promptgraft.search.settings import Settings
from promptgraft.search.validation import Full, Racing, Validation
from promptgraft.strict.checks import COUNT, FLAG, SHARE, check, integer, one_of

Preset = Literal["lean", "paper"]
MinibatchChoice = Literal["random", "epochs", "teaching"]
ModuleChoice = Literal["turns", "blamed", "all", "random"]
Explored = Literal["frontier", "leaders", "pool"]

_PRESETS: Mapping[str, Mapping[str, object]] = {
    "paper": {
        "exploration": 1.0,
        "minibatches": "epochs",
        "reuse_rollouts": False,
        "whole_prompt": 0.0,
        "module_choice": "turns",
        "reflections_per_module": 1,
        "published_question": True,
        "shorten_margin": "off",
    },
    "lean": {
        "exploration": 0.1,
        "minibatches": "teaching",
        "reuse_rollouts": True,
        "whole_prompt": 0.9,
        "module_choice": "blamed",
        "reflections_per_module": 2,
        "published_question": False,
        "shorten_margin": 0.01,
    },
}
COPIED_WORDS: Mapping[Preset, int] = {"paper": 0, "lean": 8}
"""Default of ``guards.max_copied_words``; 0 for no guard."""
VALIDATION: Mapping[Preset, Validation] = {"paper": Full(), "lean": Racing()}
PRUNING: Mapping[Preset, FrontierPruning] = {"paper": "redundant", "lean": "dominated"}
_MOST_AT_ONCE = 1_000
"""Most proposals under way at a time; all of them begin before the first one ends."""

_VALIDATION = check(
    "Full() or Racing()", lambda value: value if isinstance(value, Full | Racing) else None
)


def _by_preset(name: str) -> Any:
    """Return a default that depends on the field ``preset``."""

    def found(strategy: Strategy) -> object:
        # An unknown preset is refused by its validator, after this runs.
        return _PRESETS.get(strategy.preset, _PRESETS["lean"])[name]

    return attrs.Factory(found, takes_self=True)


@attrs.frozen(kw_only=True)
class Strategy(Settings):
    """How a search spends its rollouts.

    Attributes:
        preset: what the next ten settings are where they are not given. ``lean`` reached the
            highest scores with the fewest rollouts in ``benchmarks/search``; ``paper`` is the
            published algorithm (Agrawal et al. 2025, arXiv:2507.19457).
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
            before, those first that were chosen least often for that, the others are epochs.
        reuse_rollouts: a parent's rollouts on the training set are not made again, except for
            one example of each minibatch.
        whole_prompt: share of the steps, 0 to 1, in which one reflection sees all instructions
            with the failures and may change several, those that it blames. The others reflect on
            those that ``module_choice`` chooses, each alone. Above 0, lines that did not help
            where they were put are tried in other parts, without a reflection.
        module_choice: ``turns``: in turn; or ``blamed``: in half of the steps all those are
            changed together that feedback and traces name, up to four; in a quarter only those
            have their turn that are named most often. Examples are changed one at a time. Or
            ``all``: every part in each step, of
            what is no single prompt up to four; or ``random``: any one of them.
        learn_from_perfect: reflect on minibatches too in which every answer is perfect; else such
            a step changes nothing.
        reflections_per_module: in every other proposal the failures of a minibatch are shared among
            so many reflections on a module, each shown two or more, if its text is short; what
            they change is put together line by line and evaluated as one.
        published_question: a reflection on a section asks in the words of the paper, and shows the
            section and the rollouts alone; else also the other parts and the expected answers.
        shorten_margin: how much worse than the best candidate one may be that does without some of
            its lines, and take its place at the end of the search, 0 to 1; or ``off``, which
            shortens nothing.
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
        history_top_k: how many better answers of earlier candidates to the same example the
            reflector is shown, of those that the run has seen on the training set.
    """

    settings_path: ClassVar[str] = "strategy."

    preset: Preset = attrs.field(default="lean", validator=one_of(*get_args(Preset)))
    validation: Validation | None = attrs.field(default=None, validator=_VALIDATION.or_none)
    frontier_pruning: FrontierPruning | None = attrs.field(
        default=None, validator=one_of(*get_args(FrontierPruning)).or_none
    )
    exploration: float = attrs.field(default=_by_preset("exploration"), validator=SHARE)
    explored: Explored = attrs.field(default="frontier", validator=one_of(*get_args(Explored)))
    minibatches: MinibatchChoice = attrs.field(
        default=_by_preset("minibatches"), validator=one_of(*get_args(MinibatchChoice))
    )
    reuse_rollouts: bool = attrs.field(default=_by_preset("reuse_rollouts"), validator=FLAG)
    whole_prompt: float = attrs.field(default=_by_preset("whole_prompt"), validator=SHARE)
    module_choice: ModuleChoice = attrs.field(
        default=_by_preset("module_choice"), validator=one_of(*get_args(ModuleChoice))
    )
    learn_from_perfect: bool = attrs.field(default=False, validator=FLAG)
    reflections_per_module: int = attrs.field(
        default=_by_preset("reflections_per_module"), validator=COUNT
    )
    published_question: bool = attrs.field(default=_by_preset("published_question"), validator=FLAG)
    shorten_margin: float | Literal["off"] = attrs.field(
        default=_by_preset("shorten_margin"), validator=SHARE.or_word("off")
    )
    proposals_per_step: int = attrs.field(default=1, validator=COUNT)
    steps_at_once: int = attrs.field(default=1, validator=COUNT)
    max_merge_invocations: int = attrs.field(default=5, validator=integer(0))
    merge_overlap: int = attrs.field(default=0, validator=integer(0))
    history_top_k: int = attrs.field(default=0, validator=integer(0))

    def __attrs_post_init__(self) -> None:
        at_once = self.proposals_per_step * self.steps_at_once
        if at_once > _MOST_AT_ONCE:
            raise ConfigError(
                f"strategy.steps_at_once: {self.steps_at_once} steps of {self.proposals_per_step} "
                f"proposals are {at_once} proposals at once, expected at most {_MOST_AT_ONCE}; "
                "lower one of them"
            )


ATTEMPTS = 2
"""Most reflections for one text: the first, and one repair."""

MOST_AT_ONCE = 4
"""Most modules that one proposal changes."""

NEVER_FOR_LINES = 1_000
"""Rollouts of the budget of which none are reserved for shortening."""

SHORTENING = 6
"""One of this many further rollouts is reserved for shortening."""

MOST_FOR_LINES = 300
"""Most rollouts that are reserved for shortening, besides those of a race."""

_FAILURES_EACH = 3


def parts_of(failures: int, reflections: int) -> int:
    """Return how many of the reflections share the failures: at most one per three failures."""
    return max(1, min(reflections, -(-failures // _FAILURES_EACH)))

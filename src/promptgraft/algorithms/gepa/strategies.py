"""Builds the strategies of a search from its settings."""

from __future__ import annotations

import attrs

from promptgraft.algorithms.gepa.attribution import Complaints
from promptgraft.algorithms.gepa.carrying import LineHistory
from promptgraft.algorithms.gepa.combining import Combiner
from promptgraft.algorithms.gepa.merging import Merger
from promptgraft.algorithms.gepa.proposal import Rules
from promptgraft.algorithms.gepa.questions import questions_of
from promptgraft.algorithms.gepa.relocating import Strays
from promptgraft.algorithms.gepa.sampling import History, Lessons, names_of
from promptgraft.algorithms.gepa.selection import Choices
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.algorithms.gepa.shortening import Shortener
from promptgraft.search.acceptance import Comparer
from promptgraft.search.algorithm import Kit
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.population import Seen
from promptgraft.search.racing import RacingValidator
from promptgraft.search.stops import Patience
from promptgraft.search.validation import Full, Validator


@attrs.frozen(kw_only=True)
class Strategies:
    """The strategies of one search.

    Attributes:
        choices: makes all random choices.
        seen: the candidates tried so far.
        patience: ends the search after too many steps without anything to try.
        history: better answers to show to reflections; None to show none.
        lessons: chooses parents and minibatches.
        strays: lines to try in other parts; None to leave lines where they are.
        lines: which lines to carry into the next children, and which to drop; None for neither.
        complaints: learns which words of feedback identify a complaint.
        rules: what all proposals share.
        validator: evaluates candidates on the validation set.
        combiner: combines the accepted children of a step.
        merger: merges candidates of the frontier.
        shortener: shortens the best candidate at the end.
    """

    choices: Choices
    seen: Seen
    patience: Patience
    history: History | None
    lessons: Lessons
    strays: Strays | None
    lines: LineHistory | None
    complaints: Complaints
    rules: Rules
    validator: Validator
    combiner: Combiner
    merger: Merger
    shortener: Shortener


def strategies_of(config: GepaSettings, kit: Kit) -> Strategies:
    """Return the strategies for a search with these settings."""
    target, scorer = kit.target, kit.scorer
    choices = Choices(
        config.seed,
        target.modules,
        example_rate=config.example_mutation_rate,
        draws_modules=config.strategy.module_choice == "random",
        whole_share=config.whole_share,
    )
    seen = Seen()
    margin, perfect = config.strategy.shorten_margin, config.objectives.perfect_score
    comparer = Comparer(
        policy=config.acceptance, scorer=scorer, max_rollout_cost=config.guards.max_rollout_cost
    )
    validator = _validator(config, kit, choices)
    return Strategies(
        choices=choices,
        seen=seen,
        patience=Patience(
            max_idle_steps=config.limits.max_idle_steps,
            max_failed_reflections=config.limits.max_failed_reflections,
        ),
        history=History(top_k, scorer) if (top_k := config.strategy.history_top_k) else None,
        lessons=Lessons(config, kit.training, choices=choices, scorer=scorer),
        strays=Strays(kit, config.trial_size) if config.relocates_lines else None,
        lines=LineHistory(target, scorer, perfect) if config.relocates_lines else None,
        complaints=Complaints(),
        rules=Rules(
            config=config,
            trial_size=config.trial_size,
            kit=kit,
            comparer=comparer,
            guard=AnswerGuard(kit.training, copied) if (copied := config.copied_words) else None,
            meta_prompts=questions_of(kit.questions, config.strategy),
            names=names_of(target),
            seen=seen,
        ),
        validator=validator,
        combiner=Combiner(target, kit.validation, seen),
        merger=Merger(config=config, kit=kit, choices=choices, seen=seen, validator=validator),
        shortener=Shortener(
            margin=None if margin == "off" else margin,
            kit=kit,
            kept=config.shortening_size,
            seen=seen,
            validator=validator,
            is_early=config.strategy.steps_at_once > 1,
        ),
    )


def _validator(config: GepaSettings, kit: Kit, choices: Choices) -> Validator:
    order = choices.order(len(kit.validation))
    validation = config.validation
    if isinstance(validation, Full):
        return Validator(kit.validation, kit.population)
    return RacingValidator(
        validation,
        kit.validation,
        order=order,
        budget=kit.budget,
        population=kit.population,
        race_order=choices.race_order,
    )

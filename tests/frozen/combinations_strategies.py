"""Frozen searches by strategy: presets, steps at once, merges, budgets and races."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from frozen.combination import RACE, WIDE, Combination
from frozen.world import World


def presets() -> list[Combination]:
    return [
        Combination("paper"),
        Combination(
            "paper-seed-2-shuffled",
            WIDE,
            {"seed": 2, "pareto_set_size": 10, "shuffle_examples": True},
        ),
        Combination(
            "paper-random-minibatches", WIDE, {"minibatches": "random", "pareto_set_size": 10}
        ),
        Combination("lean", WIDE, RACE),
        Combination(
            "lean-moody",
            World(
                parts=("rules", "notes", "style"),
                words=9,
                needs=2,
                validation=12,
                learning=12,
                mood="moody",
            ),
            {**RACE, "pareto_set_size": 12, "seed": 5, "exploration": 0.5},
        ),
        Combination(
            "lean-as-it-comes",
            World(validation=20, learning=20, words=10, needs=3),
            {"preset": "lean", "rollout_budget": 220, "pareto_set_size": 20},
        ),
    ]


def at_once() -> list[Combination]:
    found = []
    shapes = ((2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (4, 4))
    for number, (proposals, steps) in enumerate(shapes):
        for preset, base in (("paper", {"pareto_set_size": 10}), ("lean", RACE)):
            world = World(
                parts=("rules", "notes", "style"),
                words=12,
                needs=2,
                validation=10,
                learning=14,
                mood=("lines", "moody", "plain")[number % 3],
                task_fault="transient" if number % 2 else "",
                # Fewer with lean: where a provider ends a run depends on the executor.
                task_fault_share=8 if preset == "paper" else 4,
            )
            settings = {
                **base,
                "preset": preset,
                "rollout_budget": 260,
                "minibatch_size": 2,
                "seed": number,
                "proposals_per_step": proposals,
                "steps_at_once": steps,
            }
            found.append(
                Combination(f"{preset}-{proposals}-proposals-{steps}-steps", world, settings)
            )
    return found


def merges() -> list[Combination]:
    specialists = World(
        parts=("rules", "notes", "rules", "notes", "nothing"),
        words=10,
        validation=10,
        learning=20,
        mood="specialist",
    )
    narrow = World(
        parts=("rules", "notes", "tone"), words=9, validation=10, learning=10, mood="narrow"
    )
    merging = {
        "enable_merge": True,
        "pareto_set_size": 10,
        "rollout_budget": 260,
        "max_failed_reflections": 40,
    }
    return [
        Combination("merge-full", specialists, {**merging, "frontier_pruning": "dominated"}),
        *(
            Combination(
                name,
                narrow,
                {
                    **merging,
                    **RACE,
                    "exploration": 0.8,
                    "module_choice": "turns",
                    "rollout_budget": 240,
                    "seed": seed,
                },
            )
            for name, seed in (("merge-racing", 15), ("merge-racing-refused", 17))
        ),
        Combination(
            "merge-racing-beside-steps",
            narrow,
            {
                **merging,
                **RACE,
                "exploration": 0.8,
                "rollout_budget": 300,
                "steps_at_once": 2,
                "seed": 8,
            },
        ),
        Combination(
            "merge-narrow", narrow, {**merging, "frontier_pruning": "dominated", "seed": 4}
        ),
        Combination(
            "merge-noisy",
            replace(narrow, noise=15),
            {**merging, "frontier_pruning": "dominated", "seed": 2},
        ),
        Combination(
            "merge-beside-steps",
            specialists,
            {
                **merging,
                "frontier_pruning": "dominated",
                "steps_at_once": 2,
                "proposals_per_step": 2,
            },
        ),
    ]


def budgets() -> list[Combination]:
    """Return searches whose end is decided by what is kept for steps, races and merges."""
    endless = World(parts=("rules", "notes"), words=40, needs=2, validation=10, learning=30)
    forgetting = replace(endless, parts=("rules", "notes", "tone"), words=15, mood="narrow")
    merging = {"enable_merge": True, "frontier_pruning": "dominated"}
    found = []
    for number, (proposals, steps) in enumerate(((1, 3), (2, 3), (3, 2), (1, 6))):
        for preset, base in (("paper", {"pareto_set_size": 10}), ("lean", RACE)):
            merge = merging if (preset == "lean") == (number % 2 == 0) else {}
            settings: dict[str, Any] = {
                **base,
                **merge,
                "preset": preset,
                "rollout_budget": (210 if merge else 101) + 13 * number,
                "minibatch_size": 2,
                "seed": number % 2,
                "proposals_per_step": proposals,
                "steps_at_once": steps,
                "exploration": 0.7,
            }
            name = f"budget-{preset}-{proposals}-{steps}{'-merging' * bool(merge)}"
            found.append(Combination(name, forgetting if merge else endless, settings))
    return found


def races() -> list[Combination]:
    """Return races between candidates that are close to one another."""
    graded = World(words=14, needs=4, validation=16, learning=20, mood="restless", noise=10)
    return [
        Combination(
            f"race-{seed}",
            graded,
            {
                **RACE,
                "pareto_set_size": 16,
                "minibatch_size": 4,
                "rollout_budget": 220,
                "seed": seed,
                "validation": {"first": 4, "every": 2, "finalists": 1 + seed % 3},
                "exploration": 0.4,
            },
        )
        for seed in range(5)
    ]

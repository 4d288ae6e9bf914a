"""Frozen searches by what they change, by rules, by how they end, and by what fails."""

from __future__ import annotations

from dataclasses import replace

from frozen.combination import RACE, Combination
from frozen.world import World


def parts() -> list[Combination]:
    every = ("look_up", "0", "first", "examples", "verdict", "rules")
    examples = {"example_mutation_rate": 0.6, "max_task_examples_per_section": 3}
    single = [
        Combination(
            f"part-{name}",
            World(parts=(key,), words=4, validation=6, learning=6, mood="moody"),
            {"preset": preset, "rollout_budget": 80},
        )
        for name, key, preset in (
            ("section", "rules", "paper"),
            ("tool", "look_up", "lean"),
            ("tool-example", "0", "paper"),
            ("task-example", "first", "lean"),
            ("generated", "examples", "paper"),
            ("output-field", "verdict", "lean"),
        )
    ]
    mixed = World(parts=every, words=12, needs=3, validation=8, learning=12, mood="moody")
    return [
        *single,
        Combination(
            "parts-mixed-paper", mixed, {**examples, "pareto_set_size": 8, "rollout_budget": 200}
        ),
        Combination(
            "parts-mixed-lean",
            mixed,
            {**examples, **RACE, "pareto_set_size": 8, "rollout_budget": 200},
        ),
        Combination(
            "parts-mixed-merged",
            World(parts=every, words=24, validation=14, learning=21, mood="narrow"),
            {
                **examples,
                "pareto_set_size": 14,
                "rollout_budget": 300,
                "seed": 3,
                "minibatch_size": 4,
                "enable_merge": True,
            },
        ),
        Combination(
            "parts-mixed-merged-woven",
            World(
                parts=(*every, "nothing"), words=14, validation=14, learning=21, mood="specialist"
            ),
            {
                **examples,
                "pareto_set_size": 14,
                "rollout_budget": 300,
                "seed": 1,
                "minibatch_size": 4,
                "enable_merge": True,
                "proposals_per_step": 2,
                "max_failed_reflections": 40,
            },
        ),
        Combination(
            "parts-mixed-unparsable",
            World(
                parts=every,
                words=12,
                needs=2,
                validation=8,
                learning=12,
                task_fault="Pardon?",
                task_fault_share=25,
            ),
            {**examples, "pareto_set_size": 8, "rollout_budget": 160, "steps_at_once": 2},
        ),
    ]


def rules() -> list[Combination]:
    noisy = World(words=6, validation=10, learning=10, noise=10, held_out=4, mood="greedy")
    paired = {"acceptance": {"paired": {"level": 0.2, "max_repeats": 1}}}
    big = {"pareto_set_size": 10, "rollout_budget": 260}
    graded = World(parts=("rules", "notes"), words=8, needs=3, validation=10, learning=10)
    keen = World(words=6, mood="narrow", stored="Words: w0 w2", validation=8, learning=8)
    critical = {"pareto_set_size": 8, "rollout_budget": 120}
    objectives = {**big, "rollout_budget": 160}
    return [
        Combination("paired-confirmed", noisy, {**big, **paired, "minibatch_size": 5}),
        Combination(
            "paired-racing",
            noisy,
            {**RACE, **paired, "rollout_budget": 260, "seed": 5, "minibatch_size": 5},
        ),
        Combination(
            "paired-not-confirmed",
            World(words=6, validation=4, learning=8, noise=30),
            {
                "acceptance": {"paired": {"level": 0.04, "max_repeats": 2}},
                "pareto_set_size": 4,
                "rollout_budget": 150,
                "minibatch_size": 4,
            },
        ),
        Combination("min-gain", graded, {**objectives, "acceptance": {"min gain": {"gain": 0.2}}}),
        Combination("held-out", World(words=8, held_out=6), {"rollout_budget": 140}),
        Combination(
            "held-out-racing",
            World(words=12, needs=2, validation=10, learning=10, held_out=5),
            {**RACE},
        ),
        Combination(
            "blamed-modules",
            World(
                parts=("rules", "notes", "style", "tone"),
                words=8,
                needs=3,
                validation=8,
                learning=12,
                mood="lines",
            ),
            {
                "module_choice": "blamed",
                "pareto_set_size": 8,
                "rollout_budget": 200,
                "minibatch_size": 4,
            },
        ),
        Combination(
            "critical-to-win", replace(keen, critical=("v0", "v2")), {**critical, "seed": 2}
        ),
        Combination(
            "critical-to-join",
            replace(keen, words=12, learning=12, mood="restless", critical=("l0", "l2")),
            {**critical, "minibatch_size": 8},
        ),
        Combination(
            "critical-racing",
            replace(keen, mood="restless", critical=("v0", "l0")),
            {**critical, **RACE, "pareto_set_size": 8, "minibatch_size": 6},
        ),
        Combination("weights", graded, {**objectives, "weights": {"known": 3, "brief": 1}}),
        Combination(
            "weights-of-amounts",
            graded,
            {**objectives, "weights": {"score": 2, "tokens": 1, "cost": 1}},
        ),
        Combination(
            "pick", graded, {**objectives, "preset": "lean", "pick": {"known": 4, "brief": 1}}
        ),
        Combination(
            "pick-of-equals",
            World(words=6, mood="narrow"),
            {"pick": {"known": 1}, "minibatch_size": 2},
        ),
        Combination(
            "required-objectives", graded, {**objectives, "required_objectives": {"brief": 0.2}}
        ),
        *(
            Combination(
                f"frontier-{kind}",
                graded,
                {**objectives, "frontier_type": kind, "frontier_pruning": pruning},
            )
            for kind, pruning in (
                ("objective", "redundant"),
                ("hybrid", "dominated"),
                ("cartesian", "redundant"),
            )
        ),
        Combination(
            "history",
            World(words=9, needs=2, validation=8, learning=8, mood="forgetful"),
            {"history_top_k": 2, "pareto_set_size": 8, "rollout_budget": 180, "minibatch_size": 4},
        ),
        Combination(
            "long-parts", World(mood="wordy"), {"max_part_chars": 120, "rollout_budget": 120}
        ),
        Combination(
            "long-prompts",
            World(mood="greedy", words=8, needs=2, parts=("rules", "notes", "style")),
            {"max_prompt_chars": 112},
        ),
        Combination("copied-answers", World(mood="copier"), {"max_copied_words": 6}),
        Combination("lost-placeholders", World(mood="careless", parts=("style", "rules")), {}),
        Combination(
            "strange-texts",
            World(mood="strange", parts=("rules", "0", "first", "verdict"), words=8, learning=8),
            {"rollout_budget": 150, "example_mutation_rate": 0.5, "seed": 0},
        ),
        Combination("improves-what-is-stored", World(stored="Words: w0 w2"), {}),
        Combination(
            "automatic-budget",
            World(mood="moody", words=8),
            {"auto": "light", "rollout_budget": 0, "minibatch_size": 2},
        ),
        Combination(
            "dear-rollouts",
            World(task_cost="0.02"),
            {"max_rollout_cost": "0.01", "max_idle_steps": 3},
        ),
    ]


def ends() -> list[Combination]:
    endless = World(parts=("rules",), words=30, needs=2, validation=8, learning=20)
    long = {"pareto_set_size": 8, "rollout_budget": 300}
    return [
        Combination("end-perfect", World(words=4, mood="greedy"), {"rollout_budget": 300}),
        Combination("end-no-progress", World(mood="stubborn"), {"max_idle_steps": 4}),
        Combination(
            "end-no-progress-idle",
            World(mood="useless"),
            {"max_idle_steps": 4, "targets": ["rules"], "rollout_budget": 1000},
        ),
        Combination("end-reflection-silent", World(mood="silent"), {"max_failed_reflections": 3}),
        Combination(
            "end-reflection-down",
            World(reflection_fault="transient"),
            {"max_failed_reflections": 3, "steps_at_once": 2},
        ),
        Combination(
            "end-reflection-refuses",
            World(reflection_fault="permanent", reflection_fault_share=40),
            {"seed": 3},
        ),
        Combination(
            "end-task-refuses",
            World(words=8, learning=8, task_fault="permanent", task_fault_word="w7"),
            {"minibatch_size": 1},
        ),
        Combination("end-task-down", World(task_fault="transient"), {}),
        Combination(
            "end-task-faulty",
            World(learning=14, words=14, task_fault="transient", task_fault_share=45),
            {"max_unscored_share": 0.2, "steps_at_once": 2},
        ),
        Combination(
            "end-deadline", World(mood="moody", reflection_seconds=10.0, deadline=35.0), {}
        ),
        Combination(
            "end-timeout",
            World(mood="moody", reflection_seconds=10.0, deadline=1000.0),
            {"timeout": 25.0, "preset": "lean"},
        ),
        Combination(
            "end-cost", World(reflection_cost="0.50", task_cost="0.001"), {"max_cost": "1.60"}
        ),
        Combination("end-cost-unknown", World(reflection_cost=None), {"max_cost": "1.60"}),
        Combination(
            "end-tokens", World(), {"max_tokens": 700, "minibatch_size": 1, "pareto_set_size": 1}
        ),
        Combination("end-reflections", endless, {**long, "max_reflections": 5, "steps_at_once": 2}),
        Combination("end-cancelled", World(ends="cancellation", ends_at=3), {}),
        Combination("end-stop-file", World(ends="file", ends_at=3), {"stoppers": {"file": None}}),
        Combination(
            "end-proposals",
            endless,
            {**long, "stoppers": {"proposals": 5, "candidates": 9}, "proposals_per_step": 2},
        ),
        Combination(
            "end-no-improvement",
            World(words=20, validation=6, learning=20, mood="moody"),
            {"stoppers": {"no improvement": 2}, "preset": "lean", "rollout_budget": 300},
        ),
        Combination(
            "end-target-score",
            endless,
            {**RACE, **long, "pareto_set_size": 8, "stoppers": {"target score": 0.2}},
        ),
        Combination(
            "end-objectives", endless, {**RACE, **long, "stoppers": {"objectives": {"known": 0.25}}}
        ),
        Combination(
            "end-candidates", endless, {**long, "stoppers": {"candidates": 4}, "steps_at_once": 2}
        ),
        Combination("end-stopper", endless, {**long, "stoppers": {"function": 57}}),
    ]


def faults() -> list[Combination]:
    return [
        Combination(
            "faults-bearable",
            World(
                words=8,
                needs=2,
                validation=8,
                learning=8,
                task_fault="transient",
                task_fault_share=12,
            ),
            {"pareto_set_size": 8, "rollout_budget": 200},
        ),
        Combination(
            "faults-of-every-kind",
            World(
                parts=("rules", "verdict"),
                words=8,
                needs=2,
                validation=8,
                learning=8,
                mood="moody",
                task_fault="transient",
                task_fault_share=10,
                reflection_fault="transient",
                reflection_fault_share=20,
            ),
            {**RACE, "pareto_set_size": 8, "rollout_budget": 220},
        ),
        Combination(
            "faults-are-zero",
            World(words=8, validation=8, learning=8, task_fault="transient", task_fault_share=40),
            {"on_error": "zero", "pareto_set_size": 8, "rollout_budget": 150},
        ),
        Combination(
            "faults-are-never-too-many",
            World(words=8, validation=8, learning=8, task_fault="transient", task_fault_share=50),
            {
                "max_unscored_share": 1.0,
                "pareto_set_size": 8,
                "rollout_budget": 150,
                "max_idle_steps": 5,
            },
        ),
    ]

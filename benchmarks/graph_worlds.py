"""Searches on simulated graphs: textual gradients by steps and by trace, GEPA, and gepa.

A world is a graph of 3 to 12 nodes. Each node knows the words of its text; a case needs one word of
each. A node that lacks its word, or that errs, says something wrong, which the nodes behind it
carry on: the feedback names the wrong pieces of the final answer, and no node. Every method has the
same worker, the same rollouts, and the same simulated reflection model, which reads what its
question shows, and errs in one of ten. A candidate is judged by the words that its nodes know.

    python benchmarks/graph_worlds.py [--seeds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import attrs
from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter

from promptgraft import (
    Data,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GradientConfig,
    GradientOptimizer,
    OptimizationContext,
    RolloutFeedback,
    ScriptedAdapter,
    Strategy,
)
from promptgraft.evals.types import Step
from promptgraft.ground.serde import digest_text
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import EventBus
from promptgraft.search.events import CandidateAdded
from promptgraft.targets import Identity, Module, RolloutRecord, TextTarget

BUDGETS = (300, 600, 1200)
WORDS = 16
TRAINING, VALIDATION = 100, 40
WORKER_ERRS, READER_ERRS, FORGETS = 0.1, 0.1, 0.03
MOST_WORDS = 3
_PART = re.compile(r"\*\*(P\d+):\*\* (\S+)\n\n```\n(.*?)\n```", re.DOTALL)
_WRONG = re.compile(r"wrong-\w+")
_BEFORE = re.compile(r"\*\*(S\d+):\*\*[^`]*```\n(.*?)\n```", re.DOTALL)
_NEED = re.compile(r"needs (\w+)")


@attrs.frozen
class Node(Module):
    """A node of a world; its text is a part."""

    name: str
    kind = "node"


@attrs.frozen
class World:
    """A graph, and what its nodes have to know."""

    seed: int
    before: tuple[tuple[int, ...], ...]
    words: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, seed: int) -> World:
        """Make the world of a seed; it has 3 to 12 nodes."""
        chance, size = random.Random(f"world {seed}"), 3 + seed % 10
        before: list[tuple[int, ...]] = [()]
        for node in range(1, size - 1):
            count = chance.choice((1, 1, 2))
            before.append(tuple(sorted(chance.sample(range(node), min(count, node)))))
        open_ends = set(range(size - 1)) - {one for those in before for one in those}
        before.append(tuple(sorted(open_ends)))
        words = tuple(
            tuple(f"w{chance.randrange(10**6):06}" for _ in range(WORDS)) for _ in range(size)
        )
        return cls(seed, tuple(before), words)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"node{at}" for at in range(len(self.before)))

    @property
    def first(self) -> dict[str, str]:
        return {name: f"Know: {own[0]}" for name, own in zip(self.names, self.words, strict=True)}

    def case(self, name: str) -> tuple[str, ...]:
        """Return the word that each node needs for a case."""
        chance = random.Random(f"{self.seed} {name}")
        return tuple(chance.choice(own) for own in self.words)

    def quality(self, texts: Mapping[str, str]) -> float:
        """Return the share of the words that the nodes know."""
        pairs = zip(self.names, self.words, strict=True)
        known = [word in texts[name].split() for name, own in pairs for word in own]
        return sum(known) / len(known)

    def answer(self, texts: Mapping[str, str], case: str) -> tuple[tuple[Step, ...], float, str]:
        """Return the steps of an answer, its score, and the feedback on it."""
        said: list[list[str]] = []
        steps = []
        for at, (name, word) in enumerate(zip(self.names, self.case(case), strict=True)):
            given = sorted({one for before in self.before[at] for one in said[before]})
            chance = random.Random(f"{self.seed} {case} {name} {texts[name]}")
            right = word in texts[name].split() and chance.random() >= WORKER_ERRS
            piece = digest_text(f"{case} {name}")[:8]
            said.append([*given, f"right-{piece}" if right else f"wrong-{piece}"])
            steps.append(
                Step(
                    id=str(at + 1),
                    node=name,
                    kind="prompt",
                    after=tuple(str(one + 1) for one in self.before[at]),
                    input=f"needs {word}\n{' '.join(given)}",
                    output=" ".join(said[-1]),
                    parts={name: digest_text(texts[name])},
                )
            )
        wrong = [one for one in said[-1] if one.startswith("wrong")]
        score = 1 - len(wrong) / len(self.before)
        return tuple(steps), score, f"not right: {' '.join(wrong)}" if wrong else "right"


class Target(TextTarget):
    """A world as the searches of promptgraft see it."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def identity(self) -> Identity:
        return Identity(name=f"world/{self.world.seed}")

    @property
    def modules(self) -> tuple[Module, ...]:
        return tuple(map(Node, self.world.names))

    def source(self, module: Module) -> str:
        return self.world.first[module.name]

    def rollout(self, candidate: Any, example: GepaExample, deadline: object) -> RolloutRecord:
        del deadline
        steps, score, feedback = self.world.answer(candidate.changes, example.id)
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=f"case {example.id}",
            output_repr=steps[-1].output,
            tool_trace_repr="",
            feedback=RolloutFeedback(score=score, feedback=feedback),
            steps=steps,
        )


class Reader:
    """The simulated reflection model: it reads what is shown, and errs now and then."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"reader {seed}")
        self.questions = 0
        self.chars = 0

    def errs(self) -> bool:
        return self._chance.random() < READER_ERRS

    def rewritten(self, text: str, needs: Sequence[str]) -> str:
        """Write a few of the words that are needed into a text, which may lose some."""
        words = [word for word in text.split() if self._chance.random() >= FORGETS]
        new = [one for one in dict.fromkeys(needs) if one not in words]
        return " ".join([*words, *new[:MOST_WORDS]]) or "Know:"

    def own_needs(self, shown: str, answers: Sequence[tuple[str, str]]) -> list[str]:
        """Return what a node lacked, by its inputs and outputs beside the feedback."""
        wrong = set(_WRONG.findall(shown))
        needs = []
        for given, said in answers:
            is_own = wrong & (set(_WRONG.findall(said)) - set(_WRONG.findall(given)))
            if bool(is_own) != self.errs():
                needs += _NEED.findall(given)
        return needs

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        self.questions += 1
        self.chars += len(rendered.text)
        bound = {
            segment.placeholder: segment.text
            for section in rendered.sections
            for segment in section.segments
            if segment.placeholder
        }
        match rendered.key:
            case "blame-step":
                return _block(self._blame_step(bound))
            case "blame-trace":
                return _block(self._blame_trace(bound))
            case "merge-problems":
                needs = dict.fromkeys(_NEED.findall(bound["said"]))
                said = [{"severity": "P1", "problem": f"needs {word}"} for word in needs]
                return _block({"problems": said[:20]})
            case "write-patch":
                text = self.rewritten(_unfenced(bound["current"]), _NEED.findall(bound["problems"]))
                return f"It lacks words.\n```instruction\n{text}\n```"
            case "reflect-prompt":
                return "\n".join(
                    f"```{name}\n{self.rewritten(text, self._lacked(bound['examples'], mark))}\n```"
                    for mark, name, text in _PART.findall(rendered.text)
                )
        lacked = self._lacked(bound["examples"], "this part")
        return f"```instruction\n{self.rewritten(_unfenced(bound['current']), lacked)}\n```"

    def _lacked(self, examples: str, mark: str) -> list[str]:
        """Return what the node of a part lacked in the examples of a question."""
        lacked: list[str] = []
        for example in examples.split("### Example ")[1:]:
            shown, _, feedback = example.partition("**Feedback:**")
            for step, said in re.findall(
                rf"- step (\d+):.*made with {mark},.* answered (.+)", shown
            ):
                source = re.search(rf"- step {step}:.* given the input of step (\d+)", shown)
                head = f"Step {source[1] if source else step} was given:"
                _, _, given = shown.partition(head if head in shown else "**Input:**")
                output = shown.partition("**Output:**")[2].partition("**Steps:**")[0]
                answered = output if said == "the output" else said
                lacked += self.own_needs(
                    feedback, [(_unfenced(given.split("\n```\n\n")[0]), answered)]
                )
        return lacked

    def _blame_step(self, bound: Mapping[str, str]) -> Mapping[str, object]:
        given, _, said = bound["steps"].partition("**Output:**")
        before = _BEFORE.findall(bound.get("before", ""))
        blame, hand_on = [], []
        for wrong in dict.fromkeys(_WRONG.findall(bound["losses"])):
            sources = [handle for handle, output in before if wrong in output]
            is_own = not sources and wrong in said
            if self.errs():
                is_own, sources = not is_own, sources or [handle for handle, _ in before]
            if is_own:
                need = " ".join(_NEED.findall(given)[:1])
                blame.append({"text": "T1", "severity": "P1", "problem": f"needs {need}"})
            else:
                problem = {"severity": "P1", "problem": f"not right: {wrong}"}
                hand_on += [{"step": handle, **problem} for handle in sources[:1]]
        return {"blame": blame[:20], "hand_on": hand_on[:20]}

    def _blame_trace(self, bound: Mapping[str, str]) -> Mapping[str, object]:
        steps = bound["steps"].split("### Step ")[1:]
        blame = []
        for wrong in dict.fromkeys(_WRONG.findall(bound["losses"])):
            shown = [step for step in steps if wrong in step.partition("**Output:**")[2]]
            step = self._chance.choice(shown) if self.errs() else shown[0]
            handle = re.findall(r"\bT\d+\b", step)[0]
            need = " ".join(_NEED.findall(step)[:1])
            blame.append({"text": handle, "severity": "P1", "problem": f"needs {need}"})
        return {"blame": blame[:20]}


def _block(value: object) -> str:
    return f"```json\n{json.dumps(value)}\n```"


def _unfenced(text: str) -> str:
    return text.partition("\n")[2].rpartition("\n")[0]


Points = list[tuple[int, float]]


def _ours(world: World, budget: int, make: Callable[..., Any]) -> tuple[Points, Reader]:
    reader, bus, pool = Reader(world.seed), EventBus(), list[Mapping[str, str]]()
    points: Points = []

    def added(event: CandidateAdded) -> None:
        pool.append(event.texts)
        points.append((event.rollouts, world.quality(pool[event.best])))

    bus.subscribe(CandidateAdded, added)
    cases = [*(f"v{at}" for at in range(VALIDATION)), *(f"t{at}" for at in range(TRAINING))]
    make(
        OptimizationContext(ScriptedAdapter(reader), event_bus=bus),
        {
            "rollout_budget": budget,
            "pareto_set_size": VALIDATION,
            "training_examples": [GepaExample(id=name, params=()) for name in cases],
            "data": Data(held_out=()),
            "seed": world.seed,
        },
    ).optimize(Target(world))
    return points, reader


def _gradient(context: OptimizationContext, given: dict[str, Any], **more: Any) -> Any:
    settings = {"max_rounds": 100, "patience": 100, **more}
    return GradientOptimizer(context, GradientConfig(**given, **settings))


def _lean(context: OptimizationContext, given: dict[str, Any]) -> Any:
    strategy = Strategy(preset="lean", published_question=False)
    return GepaOptimizer(context, GepaConfig(**given, minibatch_size=6, strategy=strategy))


class _Peer(GEPAAdapter[str, Any, Any]):
    propose_new_texts = None

    def __init__(self, world: World) -> None:
        self.world = world

    def evaluate(self, batch: list[str], candidate: Any, capture_traces: bool = False) -> Any:
        del capture_traces
        found = [self.world.answer(candidate, case) for case in batch]
        scores = [score + 2.0**-30 for _, score, _ in found]
        return EvaluationBatch(outputs=found, scores=scores, trajectories=found)

    def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components: Any) -> Any:
        del candidate
        # Of each component what its own step was given and gave, as its adapter for DSPy does.
        return {
            name: [
                {"given": step.input, "said": step.output, "Feedback": feedback}
                for steps, _, feedback in eval_batch.trajectories
                for step in steps
                if step.node == name
            ]
            for name in components
        }


def _gepa(world: World, budget: int, **settings: Any) -> tuple[Points, Reader]:
    reader, points = Reader(world.seed), list[tuple[int, float]]()

    def propose(
        candidate: Any, reflective_dataset: Any, components_to_update: list[str]
    ) -> dict[str, str]:
        new, said = {}, reflective_dataset
        for name in components_to_update:
            reader.questions += 1
            reader.chars += len(candidate[name]) + len(json.dumps(said[name]))
            needs = [
                need
                for one in said[name]
                for need in reader.own_needs(one["Feedback"], [(one["given"], one["said"])])
            ]
            new[name] = reader.rewritten(candidate[name], needs)
        return new

    def watch(gepa_state: Any) -> bool:
        scores = gepa_state.program_full_scores_val_set
        best = gepa_state.program_candidates[scores.index(max(scores))]
        points.append((gepa_state.total_num_evals, world.quality(best)))
        return False

    class _Silent:
        def log(self, message: str) -> None:
            del message

    found = optimize(
        seed_candidate=world.first,
        trainset=[f"t{at}" for at in range(TRAINING)],
        valset=[f"v{at}" for at in range(VALIDATION)],
        adapter=_Peer(world),
        custom_candidate_proposer=propose,
        max_metric_calls=budget,
        logger=_Silent(),
        stop_callbacks=[watch],
        seed=world.seed,
        **settings,
    )
    best: Any = found.best_candidate
    # It looks at its budget between steps only, and so may exceed it.
    points.append((found.total_metric_calls or budget, world.quality(best)))
    return [point for point in points if point[0] <= budget], reader


METHODS: Mapping[str, Callable[[World, int], tuple[Points, Reader]]] = {
    "gradient, trace": lambda world, budget: _ours(world, budget, _gradient),
    "gradient, steps": lambda world, budget: _ours(
        world, budget, lambda context, given: _gradient(context, given, attribution="steps")
    ),
    "GEPA lean": lambda world, budget: _ours(world, budget, _lean),
    "gepa 0.1.4": lambda world, budget: _gepa(world, budget, reflection_minibatch_size=6),
    "gepa 0.1.4, best": lambda world, budget: _gepa(
        world,
        budget,
        candidate_selection_strategy="current_best",
        reflection_minibatch_size=16,
        cache_evaluation=True,
        module_selector="all",
    ),
}


def one(task: tuple[str, int, int]) -> tuple[float, int, int]:
    """Return what a search has come to, its questions, and their characters."""
    logging.disable(logging.WARNING)
    method, seed, budget = task
    points, reader = METHODS[method](World.of(seed), budget)
    return points[-1][1], reader.questions, reader.chars


def main() -> None:
    """Measure every method on every world and budget, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--method", choices=[*METHODS], action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    methods = options.method or list(METHODS)
    seeds = range(options.first, options.first + options.seeds)
    tasks = [(name, seed, budget) for name in methods for budget in BUDGETS for seed in seeds]
    with ProcessPoolExecutor() as executor:
        found = dict(zip(tasks, executor.map(one, tasks), strict=True))
    if options.json:
        rows = [[*task, *what] for task, what in found.items()]
        options.json.write_text(json.dumps(rows), "utf-8")
    start = median(World.of(seed).quality(World.of(seed).first) for seed in seeds)
    print(f"{options.seeds} worlds, which begin at {start:.3f}; medians: words known (questions, ")
    print("thousand tokens of questions)\n")
    print("| method | " + " | ".join(f"{budget} rollouts" for budget in BUDGETS) + " |")
    print("|---|---|---|---|")
    for name in methods:
        cells = []
        for budget in BUDGETS:
            made = [found[name, seed, budget] for seed in seeds]
            quality, questions, chars = (median(one[at] for one in made) for at in range(3))
            cells.append(f"{quality:.3f} ({questions:.0f}, {chars / 4000:.0f})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

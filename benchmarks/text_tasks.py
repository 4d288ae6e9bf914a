"""Searches on real texts with the embedded offline model: ``make bench-tasks``.

Beside the search, on the same texts: nearest neighbours and a linear classifier, which say what
there is to learn, and gepa, whose reflections are written by the same model. Scores are shares of
held-out texts that are answered rightly, means over the seeds with their standard error.

    python benchmarks/text_tasks.py [--seeds N] [--task NAME] [--budget 400,1200] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import attrs

from promptgraft import (
    Data,
    GepaConfig,
    GepaOptimizer,
    GepaResult,
    InMemoryPromptOverridesStore,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
    ProviderAdapter,
    Session,
    evaluate,
    examples_from,
    feedback_from,
)
from promptgraft.adapters.offline.writer import Tried, rewrite
from search import peer
from search.methods import BEST_SETTINGS
from search.texts import TASKS, Parts, Text, TextTask
from search.worlds import Item, Texts, Trial
from search.yardsticks import Learner, Linear, Neighbours, share_right
from search_bench import header, machine

BASELINE, LEAN = "baseline prompt", "promptgraft lean"
LINEAR_TRAIN = "linear, training set alone"
TOLD_ALL = "no search, one reflection on all"
YARDSTICKS: Mapping[str, Learner] = {
    "1 nearest neighbour": Neighbours(1),
    "5 nearest neighbours": Neighbours(5),
    "linear classifier": Linear(),
}
PEERS: Mapping[str, Mapping[str, Any]] = {
    "gepa defaults": {},
    "gepa best settings": BEST_SETTINGS,
}
_SAID = re.compile(r"(\S+) is right, the answer was (\S+): (.*)", re.DOTALL)


@attrs.frozen
class Cell:
    """What a method reached with a seed.

    Attributes:
        score: on the held-out texts.
        seconds: of a processor, to learn and to be judged.
        calls: rollouts; 0 for yardsticks.
        asked: reflections.
    """

    score: float
    seconds: float
    calls: int = 0
    asked: int = 0


def judged(
    task: TextTask, prompt: Prompt[object], texts: Sequence[Text], model: ProviderAdapter
) -> float:
    """Return the share of texts that a prompt answers rightly."""
    found = evaluate(prompt, map(task.case, texts), task.metrics, adapter=model)
    return found.report.mean_score or 0.0


def searched(
    task: TextTask, parts: Parts, *, budget: int, seed: int, model: ProviderAdapter
) -> GepaResult:
    """Search with the default settings; the held-out texts are not among the data."""
    prompt: Prompt[object] = Prompt(task.template)
    cases = [task.case(text) for text in (*parts.validation, *parts.train)]
    config = GepaConfig(
        rollout_budget=budget,
        pareto_set_size=len(parts.validation),
        target_section_paths=[(key,) for key in task.changed],
        enable_example_generation=not task.labels,
        training_examples=examples_from(prompt, cases, task.metrics),
        feedback_fn=feedback_from(task.metrics),
        data=Data(held_out=()),
        seed=seed,
    )
    return GepaOptimizer(OptimizationContext(model), config).optimize(prompt)


def winner_of(task: TextTask, result: GepaResult) -> Prompt[object]:
    """Return the prompt with the overrides of the winner."""
    store = InMemoryPromptOverridesStore()
    prompt: Prompt[object] = Prompt(task.template, overrides_store=store, overrides_tag=result.tag)
    if result.found_better:
        store.upsert(prompt.descriptor, result.best_override)
    return prompt


class TextWorld:
    """A task with labels as gepa is given it; the same prompt, model and texts."""

    tools: tuple[str, ...] = ()

    def __init__(self, task: TextTask, parts: Parts, seed: int) -> None:
        self.seed = seed
        self._task, self._model = task, OfflineAdapter()
        self._texts: dict[str, Text] = {}
        self.train, self.validation, self.test = (
            tuple(self._item(text) for text in part)
            for part in (parts.train, parts.validation, parts.held_out)
        )
        self.first = {
            one.key: one.template for one in task.template.sections if one.key in task.changed
        }
        self.calls = 0

    def _item(self, text: Text) -> Item:
        item = Item(f"t{len(self._texts)}", ())
        self._texts[item.id] = text
        return item

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Try the texts on an item: one call."""
        self.calls += 1
        text = self._texts[item.id]
        given = self._model.evaluate(
            self._prompt(texts).bind({"text": text.text}), session=Session()
        ).text
        said = f"{text.answer} is right, the answer was {given}: {text.text}"
        return Trial(item, float(given == text.answer), said, "")

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the share of the items that the texts answer rightly; no call."""
        known = [self._texts[item.id] for item in items]
        return judged(self._task, self._prompt(texts), known, self._model)

    def _prompt(self, texts: Texts) -> Prompt[object]:
        sections = tuple(
            attrs.evolve(one, template=texts[one.key].replace("$", "$$"))
            if one.key in texts
            else one
            for one in self._task.template.sections
        )
        return Prompt(attrs.evolve(self._task.template, sections=sections))


class _Writer:
    """The embedded model's reflections without promptgraft's question around them."""

    def __init__(self, task: TextTask) -> None:
        self._labels = task.labels
        self.calls = 0

    def improve(self, module: str, text: str, feedback: Sequence[str]) -> str:
        """Return the text with what the feedback teaches."""
        del module
        self.calls += 1
        found = [said.groups() for one in feedback if (said := _SAID.fullmatch(one))]
        tried = [Tried(words, wanted, given) for wanted, given, words in found]
        return rewrite(text, tried, self._labels)

    def improve_any(self, texts: Texts, feedback: Sequence[str]) -> Texts:
        """Return better texts of all; gepa asks about one at a time."""
        return {name: self.improve(name, text, feedback) for name, text in texts.items()}


def measure(work: tuple[str, int, tuple[int, ...], tuple[int, int, int] | None]) -> dict[str, Cell]:
    """Return what every method reaches on a task with a seed; for worker processes."""
    name, seed, budgets, sizes = work
    task = TASKS[name]()
    task = attrs.evolve(task, sizes=sizes or task.sizes)
    parts, model = task.split(seed), OfflineAdapter()
    known = [*parts.train, *parts.validation]
    cells: dict[str, Cell] = {}
    begun = time.process_time()

    def note(method: str, score: float, calls: int = 0, asked: int = 0) -> None:
        nonlocal begun
        now = time.process_time()
        cells[method] = Cell(score, now - begun, calls, asked)
        begun = now

    note(BASELINE, judged(task, Prompt(task.template), parts.held_out, model))
    for title, learner in YARDSTICKS.items():
        note(title, share_right(task, learner, known, parts.held_out))
    note(LINEAR_TRAIN, share_right(task, Linear(), parts.train, parts.held_out))
    for budget in budgets:
        result = searched(task, parts, budget=budget, seed=seed, model=model)
        score = judged(task, winner_of(task, result), parts.held_out, model)
        title = f"{LEAN}, {budget:,} rollouts"
        note(title, score, result.total_rollouts, result.total_reflections)
    if task.labels:
        world, writer = TextWorld(task, parts, seed), _Writer(task)
        told = [world.answer(world.first, item).feedback for item in world.train]
        key = task.changed[0]
        texts = {**world.first, key: writer.improve(key, world.first[key], told)}
        note(TOLD_ALL, world.expected(texts, world.test), world.calls, writer.calls)
        for title, settings in PEERS.items():
            world, writer = TextWorld(task, parts, seed), _Writer(task)
            curve = peer.search(world, writer, budget=budgets[-1], **settings)
            note(f"{title}, {budgets[-1]:,}", curve.final, curve.calls, curve.reflections)
    return cells


def lines(name: str, task: TextTask, found: Sequence[Mapping[str, Cell]]) -> Iterator[str]:
    """Yield the table of a task."""
    parts = task.split(0)
    sizes = f"{len(parts.train)}+{len(parts.validation)} texts, {len(parts.held_out)} held out"
    answers = f"{len(task.labels)} labels" if task.labels else "a name in the text"
    yield f"{name}: {task.says} {answers}; {sizes}"
    yield f"  {'':<34}held out         closed   calls   asked   cpu s"
    means = {title: fmean(cells[title].score for cells in found) for title in found[0]}
    first, best = means[BASELINE], max(means[title] for title in YARDSTICKS)
    for title, mean in means.items():
        cells = [one[title] for one in found]
        spread = stdev(cell.score for cell in cells) / len(cells) ** 0.5 if cells[1:] else 0.0
        closed = f"{(mean - first) / (best - first):>6.0%}" if best > first else "     -"
        amounts = (fmean(cell.calls for cell in cells), fmean(cell.asked for cell in cells))
        used = "".join(f"{amount:>8,.0f}" if amounts[0] else f"{'':>8}" for amount in amounts)
        seconds = fmean(cell.seconds for cell in cells)
        yield f"  {title:<34}{mean:.3f} ± {spread:.3f}   {closed}{used}{seconds:>8.2f}"


def main(arguments: Sequence[str]) -> int:
    """Measure and print a table for each task."""
    options = _options(arguments)
    tasks = {name: TASKS[name]() for name in options.task or TASKS}
    if options.sizes:
        tasks = {name: attrs.evolve(one, sizes=options.sizes) for name, one in tasks.items()}
    work = [
        (name, seed, options.budget, options.sizes)
        for name, seed in product(tasks, range(options.seeds))
    ]
    begun = time.perf_counter()
    if options.jobs == 1:
        found = list(map(measure, work))
    else:
        with ProcessPoolExecutor(options.jobs) as executor:
            found = list(executor.map(measure, work))
    print(f"{header()}; seeds 0 to {options.seeds - 1}; {time.perf_counter() - begun:.0f} s")
    cells = {name: found[place * options.seeds :][: options.seeds]
             for place, name in enumerate(tasks)}  # fmt: skip
    for name, task in tasks.items():
        print("", *lines(name, task, cells[name]), sep="\n")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        plain = {
            name: [{title: attrs.asdict(cell) for title, cell in one.items()} for one in seeds]
            for name, seeds in cells.items()
        }
        options.json.write_text(json.dumps({**machine(), "found": plain}) + "\n", "utf-8")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(",")))

    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    given.add_argument("--task", action="append", choices=list(TASKS), help="may be repeated")
    given.add_argument("--seeds", type=int, default=5, help="how many splits")
    given.add_argument("--budget", type=numbers, default=(400, 1_200), help="rollouts, by commas")
    given.add_argument("--sizes", type=numbers, help="training, validation, held out, by commas")
    given.add_argument("--jobs", type=int, default=2, help="processes")
    given.add_argument("--json", type=Path, help="write everything to this file")
    return given.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

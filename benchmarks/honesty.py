"""How often a run says *improved* where nothing is better, and where something is.

Runs alone: ``python benchmarks/honesty.py [--verdicts N] [--runs N] [--gate]``.

A toy world whose scores are mostly noise, of nine kinds. First the verdict alone: a winner that is
as good as the baseline, or better by so much, is compared with it on 60 held-out cases (for power
also 24), as a run does it with rollouts left. Then whole runs: the answers to every prompt are
equally good, or the reflection model finds, with three proposals of ten, a text that is worth more.
Each figure counts seeded runs of GEPA with its default settings, 30 validation examples, 30 to
learn from and 60 or 24 that are held out. The gate is measured on reports of 30 cases and a
tolerance of 0.05, 1,000 for each figure.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, zip_longest
from types import SimpleNamespace
from typing import cast

import attrs

from figures import Figure
from overhead import InstantAdapter
from promptgraft import (
    Data,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    Limits,
    MarkdownSection,
    Objectives,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.evals import gate
from promptgraft.evals.aggregate import CaseOutcome, CaseStatus
from promptgraft.ground.serde import digest
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Rollouts, Together
from promptgraft.search.held_out import measure as measure_held_out
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.scores import Scorer
from promptgraft.search.verdict import PassRules, RunVerdict, verdict_of
from promptgraft.targets.types import Candidate, RolloutRecord

VERDICTS = 400
RUNS = 30
TITLE = "Honesty: seeded runs on scores with noise"
FINDS = 0.3
WINNERS = ("Answer in the other way.", "Answer in the better way.")
BUDGET = 900
HELD_OUT = 60
MOST_FALSE = 5.0
FEW = 24
FOUND: Mapping[tuple[str, float, int], float] = {
    ("graded within 0.2", 0.1, FEW): 80,
    ("graded", 0.1, FEW): 80,
    ("graded", 0.1, HELD_OUT): 80,
    ("graded", 0.2, HELD_OUT): 80,
    ("graded", 0.3, HELD_OUT): 95,
    ("right or wrong", 0.2, HELD_OUT): 50,
    ("right or wrong", 0.3, HELD_OUT): 80,
}
"""The least share of verdicts that are to show a gain on so many cases, in percent."""

TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="benchmarks",
    key="honesty",
    sections=(MarkdownSection(title="Rules", key="rules", template="Answer."),),
)


@attrs.frozen
class Asked:
    """A rollout whose score is drawn.

    Attributes:
        mean: what answers to the example score on average.
        fresh: draws anew for each rollout.
        fixed: draws the same for the same prompt and example.
        done: share of the run's budget that is used.
        calls: the number of answers so far.
        case: the number of the example.
        is_new: whether the prompt is another than the baseline.
        shared: what the answers of this moment have in common.
        families: draws the same for the same prompt and family of examples.
    """

    mean: float
    fresh: random.Random
    fixed: random.Random
    done: float
    calls: int = 0
    case: int = 0
    is_new: bool = False
    shared: float = 0.0
    families: random.Random = attrs.field(factory=lambda: random.Random(0))


def _graded(chance: random.Random, mean: float, spread: float = 0.3) -> float:
    return min(1.0, max(0.0, round(mean + chance.uniform(-spread, spread), 1)))


def _passed(chance: random.Random, mean: float) -> float:
    return float(chance.random() < mean)


WORKERS = 8
FIRST_HELD_OUT = 60
FAMILY = 5


def _loses_one(asked: Asked) -> float:
    """Return a score of a prompt that gains a little everywhere and loses as much on one case."""
    if asked.case == FIRST_HELD_OUT:
        return 0.05 if asked.is_new else 0.95
    little = 0.9 / (HELD_OUT - 1) * asked.is_new
    return asked.mean + little + asked.fresh.uniform(-0.1, 0.1)


def _by_family(asked: Asked) -> float:
    return _graded(asked.fresh, asked.mean + asked.families.uniform(-0.2, 0.2), 0.1)


NOISES: Mapping[str, Callable[[Asked], float]] = {
    "graded": lambda asked: _graded(asked.fresh, asked.mean),
    "graded within 0.2": lambda asked: _graded(asked.fresh, asked.mean, 0.2),
    "right or wrong": lambda asked: _passed(asked.fresh, asked.mean),
    "graded, fixed answers": lambda asked: _graded(asked.fixed, asked.mean),
    "right or wrong, fixed answers": lambda asked: _passed(asked.fixed, asked.mean),
    "graded, drift": lambda asked: _graded(asked.fresh, asked.mean - 0.3 * asked.done),
    "right or wrong, drift": lambda asked: _passed(asked.fresh, asked.mean - 0.4 * asked.done),
    "heavy tails": lambda asked: asked.mean + asked.fresh.paretovariate(2.5) - 5 / 3,
    "ties": lambda asked: 1.0 if asked.case % 5 else _passed(asked.fresh, asked.mean),
    "grows with workers": lambda asked: _graded(
        asked.fresh, asked.mean, 0.05 * (1 + asked.calls % WORKERS)
    ),
    "one case loses much": _loses_one,
    "correlated in time": lambda asked: _graded(asked.fresh, asked.mean + asked.shared, 0.1),
    "judge prefers the first of two": lambda asked: _graded(
        asked.fresh, asked.mean + 0.2 * (asked.calls % 2)
    ),
    "families of five cases, declared": _by_family,
    "families of five cases": _by_family,
}
"""How scores are drawn."""


@attrs.frozen
class Ended:
    """How a run ended.

    Attributes:
        improved: whether it says *improved*.
        stored: whether a winner is in the store.
    """

    improved: bool
    stored: bool


class World:
    """The scores of answers, each drawn after those before.

    Args:
        noise: how scores are drawn.
        worth: what an answer in the better way is worth.
        seed: draws everything.
    """

    def __init__(self, noise: str, worth: float, seed: int) -> None:
        self.chance = random.Random(f"{noise}/{worth}/{seed}")
        self.noise, self._worth, self._seed = noise, worth, seed
        self.calls, self._shared = 0, 0.0

    def score(self, example_id: str, text: str) -> float:
        """Return the score of the next answer, by a prompt with this text."""
        self.calls += 1
        self._shared = 0.95 * self._shared + self.chance.uniform(-0.1, 0.1)
        case = int(example_id[1:])
        question = Asked(
            mean=0.5 - case % 3 * 0.05 + (self._worth if "better" in text else 0.0),
            fresh=self.chance,
            fixed=random.Random(f"{self._seed}/{example_id}/{text}"),
            done=self.calls / BUDGET,
            calls=self.calls,
            case=case,
            is_new="way" in text,
            shared=self._shared,
            families=random.Random(f"{self._seed}/{case // FAMILY}/{text}"),
        )
        return NOISES[self.noise](question)


def held_out_examples(count: int) -> list[GepaExample]:
    """Return examples numbered from the first that is held out."""
    return [GepaExample(id=f"e{FIRST_HELD_OUT + number}", params=()) for number in range(count)]


def example_of(noise: str, number: int) -> GepaExample:
    """Return an example, which names its family where families are declared."""
    family = str(number // FAMILY) if "declared" in noise else ""
    return GepaExample(id=f"e{number}", params=(), family=family)


def is_shown(noise: str, worth: float, held_out: int, seed: int) -> bool:
    """Return whether a winner that is worth so much more than the baseline is called improved.

    Its scores are drawn in the order in which a run asks for them; the verdict is that of a run.
    """
    world, texts = World(noise, worth, seed), ("Answer.", WINNERS[worth > 0])
    ledger = Ledger(BUDGET)
    candidates = [Candidate(changes={"text": text}) for text in texts]
    # All that a verdict needs of a search.
    kit = SimpleNamespace(
        budget=RolloutBudget(ledger),
        population=SimpleNamespace(
            pool=SimpleNamespace(candidates=candidates), pass_rules=PassRules()
        ),
        scorer=Scorer({}),
    )
    examples = [example_of(noise, FIRST_HELD_OUT + n) for n in range(held_out)]
    asking = measure_held_out(cast("Kit", kit), 1, examples, seed=seed)
    answers: list[tuple[RolloutRecord, ...]] | None = None
    while True:
        try:
            waiting = asking.send(answers)
        except StopIteration as ended:
            return verdict_of(1, ended.value[0]) is RunVerdict.IMPROVED
        assert isinstance(waiting, Together)
        answers = _taking_turns(world, waiting)
        ledger.count(rollouts=sum(map(len, answers)))


def _taking_turns(
    world: World, asked: Together[tuple[RolloutRecord, ...]]
) -> list[tuple[RolloutRecord, ...]]:
    """Return the answers to several parts, of which the first examples go first."""
    parts = [part for part in asked.parts if isinstance(part, Rollouts)]
    answers: list[list[RolloutRecord]] = [[] for _ in parts]
    for turn in zip_longest(*(part.examples for part in parts)):
        for part, example, records in zip(parts, turn, answers, strict=True):
            if example is not None:
                text = str(part.candidate.changes["text"])
                score = world.score(example.id, text)
                feedback = RolloutFeedback(score=score, feedback="")
                # A cache answers the same; other answers differ from each other.
                output = text if "fixed" in world.noise else f"{text} {world.calls}"
                records.append(
                    RolloutRecord(example_id=example.id, output_repr=output, feedback=feedback)
                )
    return [tuple(records) for records in answers]


def run(noise: str, worth: float, held_out: int, seed: int) -> Ended:
    """Make one run on so many held-out cases."""
    world = World(noise, worth, seed)

    def judge(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        del session
        score = world.score(example.id, response.text)
        return RolloutFeedback(score=score, feedback="expected more")

    def propose(rendered: RenderedPrompt[object]) -> str:
        del rendered
        text = WINNERS[bool(worth) and world.chance.random() < FINDS]
        return f"```instruction\n{text} Number {world.chance.random()}.\n```"

    store = InMemoryPromptOverridesStore()
    context = OptimizationContext(
        InstantAdapter(lambda rendered: rendered.text),
        reflection_adapter=InstantAdapter(propose),
        overrides_store=store,
    )
    examples = [example_of(noise, number) for number in range(FIRST_HELD_OUT + held_out)]
    config = GepaConfig(
        rollout_budget=BUDGET,
        pareto_set_size=30,
        target_section_paths=(("rules",),),
        training_examples=examples[:FIRST_HELD_OUT],
        data=Data(held_out=examples[FIRST_HELD_OUT:]),
        feedback_fn=judge,
        seed=seed,
        limits=Limits(max_reflections=30),
        objectives=Objectives(perfect_score=1_000),
    )
    result = GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))
    stored = store.resolve(TEMPLATE.descriptor) is not None
    return Ended(result.improved, stored)


def measure_verdicts(verdicts: int) -> Iterator[Figure]:
    """Yield how often a verdict is *improved* without a gain, and how often it misses one."""
    with ProcessPoolExecutor() as pool:

        def share_shown(noise: str, worth: float, cases: int) -> float:
            outcomes = pool.map(
                partial(is_shown, noise, worth, cases), range(verdicts), chunksize=20
            )
            return 100 * sum(outcomes) / verdicts

        for noise in NOISES:
            yield Figure(
                f"verdict, {noise}: improved without a gain",
                share_shown(noise, 0.0, HELD_OUT),
                "%",
                MOST_FALSE,
            )
        for (noise, worth, cases), least in FOUND.items():
            missed = 100 - share_shown(noise, worth, cases)
            yield Figure(
                f"verdict, {noise}, {cases} cases: gain of {worth} missed", missed, "%", 100 - least
            )


def measure(runs: int) -> Iterator[Figure]:
    """Yield how often whole runs say *improved* without a gain, and how often they miss one."""
    with ProcessPoolExecutor() as pool:

        def all_runs(noise: str, worth: float, cases: int) -> list[Ended]:
            return list(pool.map(partial(run, noise, worth, cases), range(runs), chunksize=5))

        for noise in NOISES:
            endings = all_runs(noise, 0.0, HELD_OUT)
            improved = 100 * sum(ending.improved for ending in endings) / runs
            stored = 100 * sum(ending.stored for ending in endings) / runs
            yield Figure(f"run, {noise}: improved without a gain", improved, "%", MOST_FALSE)
            if stored != improved:
                yield Figure(f"run, {noise}: stored without a gain", stored, "%", improved)
        for noise, worth, cases in FOUND:
            shown = sum(ending.improved for ending in all_runs(noise, worth, cases))
            # Without a limit: a run also misses a gain for which it found no text.
            what = f"run, {noise}, {cases} cases: gain of {worth} missed"
            yield Figure(what, 100 - 100 * shown / runs, "%", None)


GATE_CASES = 30
TOLERANCE = 0.05
CRITICAL = 3
GATE_TRIALS = 1_000
GATE_NOISES = ("graded", "right or wrong", "right or wrong, fixed answers")


def tried_on(
    noise: str, worth: float, chance: random.Random, prompt: str, *, critical: int
) -> gate.GateReport:
    """Return what an evaluation may find; critical cases score 0.6, or pass nine times of ten."""
    usual = 0.6 if noise == "graded" else 0.9

    def answer(number: int) -> CaseOutcome:
        asked = Asked(
            mean=worth + (0.35 + 0.01 * number if number >= critical else usual),
            fresh=chance,
            fixed=random.Random(f"{prompt}/{number}"),
            done=0.0,
        )
        score = NOISES[noise](asked)
        status = CaseStatus.PASSED if score == 1 else CaseStatus.FAILED
        return CaseOutcome(case_id=f"c{number}", status=status, score=score)

    return gate.GateReport(
        prompt="benchmarks/honesty",
        tried="the source",
        split="test",
        model="noise",
        dataset=digest("cases"),
        metrics="noise",
        num_runs=1,
        cases=tuple(
            gate.CaseResult(
                id=f"c{number}",
                critical=number < critical,
                outcomes=(answer(number),),
                seconds=(0.0,),
            )
            for number in range(GATE_CASES)
        ),
    )


def again(
    evaluate: Callable[[], gate.GateReport], ids: tuple[str, ...], number: int
) -> gate.GateReport:
    """Evaluate some cases once more."""
    del number
    report = evaluate()
    return attrs.evolve(report, cases=tuple(map(report.case, ids)))


def gated(noise: str, worth: float, *, critical: int = 0) -> Counter[str]:
    """Count how gates end in which a prompt is worth so much more than the baseline."""
    chance, ends = random.Random(f"gate/{noise}/{worth}/{critical}"), Counter[str]()
    for trial in range(GATE_TRIALS):
        texts = (f"{trial}/before", f"{trial}/after" if worth else f"{trial}/before")
        kept = gate.Baseline.of(tried_on(noise, 0.0, chance, texts[0], critical=critical))
        after = partial(tried_on, noise, worth, chance, texts[1], critical=critical)
        report = gate.confirm(kept, after(), partial(again, after))
        comparison = gate.compare(kept, report, tolerance=TOLERANCE)
        ends[str(comparison.verdict)] += 1
        ends["failed"] += not gate.decide(report, gate.GateRules(), comparison).passed
    return ends


def measure_gate() -> Iterator[Figure]:
    """Yield how often the gate fails an unchanged prompt, and what it says of losses."""
    for noise in GATE_NOISES:
        for critical in (0, CRITICAL):
            also = f", {critical} critical" if critical else ""
            failed = 100 * gated(noise, 0.0, critical=critical)["failed"] / GATE_TRIALS
            yield Figure(f"gate, {noise}{also}: unchanged fails", failed, "%", MOST_FALSE)
        for loss in (0.1, 0.2, 0.3):
            ends = gated(noise, -loss)
            said = 100 * ends["not worse"] / GATE_TRIALS
            yield Figure(f"gate, {noise}: loss of {loss} not worse", said, "%", MOST_FALSE)
            unclear = 100 * ends["unclear"] / GATE_TRIALS
            yield Figure(f"gate, {noise}: loss of {loss} unclear", unclear, "%", None)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verdicts", type=int, default=VERDICTS, help="verdicts for each figure")
    parser.add_argument("--runs", type=int, default=RUNS, help="whole runs for each; 0 for none")
    parser.add_argument("--gate", action="store_true", help="measure the gate only")
    arguments, started, claims_hold = parser.parse_args(), time.perf_counter(), True
    print(f"{TITLE}, {arguments.verdicts} verdicts and {arguments.runs} runs for each figure")
    figures = [measure_gate()]
    if not arguments.gate:
        runs = measure(arguments.runs) if arguments.runs else iter(())
        figures = [measure_verdicts(arguments.verdicts), runs, *figures]
    for figure in chain.from_iterable(figures):
        print(figure.line(), flush=True)
        claims_hold = claims_hold and figure.kept
    print(f"  {time.perf_counter() - started:.0f} s")
    return 0 if claims_hold else 1


if __name__ == "__main__":
    sys.exit(main())

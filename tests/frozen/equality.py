"""Random worlds whose searches stay the same to the last answer: ``python -m frozen.equality``.

``data/`` says in words what a few chosen searches do. These are many, drawn at random, and of each
only a digest is kept: of every answer in its journal with its key, of the candidates, the winner,
the rollouts and the reason to stop. To be run from ``tests/``; ``--write`` replaces the digests.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from gradient import flow_world, words_world
from optimizers.several_world import NAMES, Rendered, lacking, prompt_of, several
from optimizers.worlds import Run, answer, bound, config, current_text, instruction, twins
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import SessionProtocol
from promptgraft.search import RunConfig

_PART = re.compile(r"(?ms)^\*\*(P\d+):\*\* section [^\n]*\n\n(`{3,})\n(.*?)\n\2$")
"""A part in the question on all parts: its mark and its text."""

RECORDED = Path(__file__).parent / "equality.json"

Outcome = dict[str, Any]
"""What is compared of a search; the digest stands for its journal and its candidates."""


@attrs.frozen
class EqualWorld:
    """A search of a random world.

    Attributes:
        name: its name.
        settings: the settings of the search.
        run: runs it with a journal, and returns its result.
    """

    name: str
    settings: RunConfig
    run: Callable[[MemoryJournal, Any], Any]

    def outcome(self, *, workers: int = 0) -> Outcome:
        """Run the search and return what is compared of it."""
        journal = MemoryJournal()
        if workers:
            with ThreadPoolExecutor(workers) as executor:
                result = self.run(journal, executor)
        else:
            result = self.run(journal, None)
        kept = {
            "answers": sorted(
                (record.key, record.kind, record.digest, _as_frozen(record.answer))
                for record in journal.records()
            ),
            "candidates": [one.digest for one in result.candidates],
            "scores": [list(scores) for scores in result.scores_matrix],
            "rejections": [(one.step, one.module, one.reason.name) for one in result.rejections],
        }
        return {
            "digest": _digest(kept),
            "candidates": len(result.candidates),
            "best": result.best_index,
            "rollouts": result.total_rollouts,
            "reflections": result.total_reflections,
            "stop": result.stop_reason.name,
        }


def _as_frozen(answer: Json) -> Json:
    """Return an answer without the expected one, which records have had since."""
    if not isinstance(answer, dict):
        return answer
    return {name: value for name, value in answer.items() if name != "expected_repr"}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _chance(text: str, seed: int) -> int:
    """Return a number below 256 that depends on a text and a seed alone."""
    return hashlib.sha256(f"{text}{seed}".encode()).digest()[0]


def paper(seed: int) -> EqualWorld:
    """Return a search with the published algorithm in a world of unreliable answers."""
    chance = random.Random(seed)
    size = chance.choice((4, 6, 8))
    settings = config(
        seed=seed,
        pareto_set_size=size,
        training_examples=twins(size),
        minibatch_size=min(chance.choice((1, 2, 3, 4)), size),
        rollout_budget=chance.choice((60, 120, 200, 320)),
        enable_merge=seed % 2 == 1,
    )

    def task(rendered: Rendered) -> str:
        return answer(rendered) if _chance(rendered.text, seed) < 200 else "no"

    def run(journal: MemoryJournal, executor: Any) -> Any:
        return Run(settings, task=task, journal=journal, executor=executor).start()

    return EqualWorld(f"paper-{seed}", settings, run)


def _misplaced(rendered: Rendered) -> str:
    """Reply with a line for the first missing word, in whichever part is asked about."""
    found = re.search(r"missing (\w+)", bound(rendered, "examples"))
    line = f"- say {found[1] if found else 'nothing'}"
    if rendered.key == "reflect-prompt":
        shown = {part[1]: part[3] for part in _PART.finditer(bound(rendered, "current"))}
        [mark] = random.Random(line).sample(sorted(shown), 1)
        edit = {"part": mark, "reason": "it lacks a word", "text": f"{shown[mark]}\n{line}"}
        return f"```json\n{json.dumps({'edits': [edit]})}\n```"
    return instruction(f"{current_text(rendered)}\n{line}")


def _judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    lacking_parts = response.text.split()
    return RolloutFeedback(
        score=1.0 - len(lacking_parts) / len(NAMES), feedback=f"missing {example.label}"
    )


def lines(seed: int) -> EqualWorld:
    """Return a search with one part that counts, so that lines are misplaced and moved."""
    chance = random.Random(seed)
    names = NAMES[: chance.choice((3, 4, 5))]
    at_once = chance.choice(((1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3)))
    settings = several(
        names,
        preset="lean",
        minibatch_size=chance.choice((2, 4, 6)),
        seed=seed,
        feedback_fn=_judge,
        rollout_budget=chance.choice((250, 400, 1_500)),
        proposals_per_step=at_once[0],
        steps_at_once=at_once[1],
        whole_prompt=chance.choice((0.3, 0.9, 1.0)),
        shorten_margin=chance.choice((0.01, 0.05, "off")),
        enable_merge=chance.random() < 0.3,
        history_top_k=chance.choice((0, 0, 2)),
    )
    knows = lacking((chance.choice(names),))
    certain = chance.choice((256, 256, 230))

    def task(rendered: Rendered) -> str:
        return knows(rendered) if _chance(rendered.text, seed) < certain else " ".join(names)

    def run(journal: MemoryJournal, executor: Any) -> Any:
        surroundings = {"prompt": prompt_of(names), "journal": journal, "executor": executor}
        return Run(settings, task=task, reflection=_misplaced, **surroundings).start()

    return EqualWorld(f"lines-{seed}", settings, run)


def choices(seed: int) -> EqualWorld:
    """Return a search with other choices of parents, parts and minibatches."""
    chance = random.Random(seed)
    names = NAMES[:4]
    settings = several(
        names,
        preset=chance.choice(("lean", "paper")),
        minibatch_size=3,
        seed=seed,
        rollout_budget=220,
        exploration=chance.choice((0.0, 0.4, 1.0)),
        explored=chance.choice(("frontier", "leaders", "pool")),
        module_choice=chance.choice(("turns", "blamed", "all", "random")),
        minibatches=chance.choice(("random", "epochs", "teaching")),
        reuse_rollouts=chance.random() < 0.5,
        learn_from_perfect=chance.random() < 0.3,
        published_question=False,
        whole_prompt=chance.choice((0.0, 0.5)),
    )

    def run(journal: MemoryJournal, executor: Any) -> Any:
        surroundings = {"prompt": prompt_of(names), "journal": journal, "executor": executor}
        return Run(settings, task=lacking(names), reflection=_misplaced, **surroundings).start()

    return EqualWorld(f"choices-{seed}", settings, run)


def gradient(seed: int) -> EqualWorld:
    """Return a gradient search, in one mode of attribution or the other."""
    attribution = ("steps", "trace")[seed % 2]
    world: Any = words_world if seed < 6 else flow_world
    settings = world.settings(attribution=attribution, seed=seed, rollout_budget=150)

    def reflection(rendered: Rendered) -> str:
        return str(world.reply(rendered)) if _chance(rendered.text, seed) < 200 else "Pardon?"

    def run(journal: MemoryJournal, executor: Any) -> Any:
        surroundings = {"journal": journal, "executor": executor}
        return world.Run(settings, reflection=reflection, **surroundings).start()

    return EqualWorld(f"gradient-{attribution}-{seed}", settings, run)


def worlds() -> Iterator[EqualWorld]:
    """Yield all worlds.

    Of 110 seeds these are the quickest that together have every value of a setting twice, and run
    every branch of the code twice that all of them run.
    """
    yield from map(paper, (0, 6, 9, 12, 17, 18, 23, 26, 32, 37))
    yield from map(lines, (0, 3, 6, 8, 11, 13, 14, 15, 17, 20, 21, 27, 28, 33))
    yield from map(choices, (0, 2, 5, 11, 13, 14, 15, 17, 21))
    yield from map(gradient, (2, 3, 5, 6, 8, 11))


def recorded() -> dict[str, Outcome]:
    """Return the recorded outcomes by the names of their worlds."""
    found: dict[str, Outcome] = json.loads(RECORDED.read_text("utf-8"))
    return found


def main(arguments: list[str]) -> int:
    """Compare, and write where that is asked for."""
    outcomes = {world.name: world.outcome() for world in worlds()}
    if arguments == ["--write"]:
        rows = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in outcomes.items())
        RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
        return 0
    before = recorded()
    differing = [name for name in outcomes if outcomes[name] != before.get(name)]
    for name in differing:
        print(f"{name}: recorded {before.get(name)}, found {outcomes[name]}")
    print(f"{len(outcomes) - len(differing)} of {len(outcomes)} worlds are equal")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

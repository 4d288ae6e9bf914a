"""Runs a gradient search on a graph, and dies at the N-th append: ``FILE N``.

Prints a digest of what came of it; with 0 it never dies.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dying_journal import DyingJournal
from gradient.flow_world import Flow, reply, settings
from optimizers.worlds import OVERLOADED
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gradient import GradientOptimizer
from promptgraft.ground.serde import digest, digest_text
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import OptimizationContext


def unlucky(rendered: RenderedPrompt[object]) -> str:
    """Reply as the reflection model does, but to one question in eight never, or with no JSON."""
    shown = digest_text("".join(one.text for one in rendered.sections if one.path != ("problem",)))
    if shown[:2] < "10":
        raise OVERLOADED
    return "?" if shown[0] == "a" and "Refused attempt" not in rendered.text else reply(rendered, 1)


def main(path: Path, fatal: int) -> None:
    config = settings(train_batch=5, max_rounds=9, patience=9)
    with DyingJournal(path) as journal, ThreadPoolExecutor(4) as executor:
        journal.lives = fatal
        context = OptimizationContext(
            ScriptedAdapter(unlucky, identity="reflection"), journal=journal, executor=executor
        )
        result = GradientOptimizer(context, config).optimize(Flow())
        # A question that the provider failed is asked, and paid for, again after a kill.
        kept = [record for record in journal.records() if "/spent/" not in record.key]
        answers = sorted((record.key, record.digest) for record in kept)
    candidates = [(one.digest, list(one.parents)) for one in result.candidates]
    used = [result.total_rollouts, result.total_reflections, str(result.stop_reason)]
    end = [str(candidates), repr(result.rounds), repr(result.rejections), used, answers]
    print(digest(end), len(answers), len(result.rounds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

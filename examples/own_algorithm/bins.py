"""A small task for the algorithm: which bin is it? ``python bins.py`` improves the prompt."""

from enum import Enum

from rewrite import Rewrite

from promptgraft import (
    Data,
    GepaExample,
    MarkdownSection,
    OfflineAdapter,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.runtime import SessionProtocol


class Bin(Enum):
    """Where rubbish goes."""

    PAPER = "paper"
    GLASS = "glass"


BINS = PromptTemplate[object](
    ns="examples",
    key="bins",
    output_type=Bin,
    sections=(
        MarkdownSection(title="Bins", key="bins", template="- paper: of paper\n- glass: of glass"),
        MarkdownSection(title="Rubbish", key="rubbish", template="$thing", overridable=False),
    ),
)
THINGS = {
    "paper": "old newspaper; cardboard box; torn envelope; newspaper page; big cardboard; envelope",
    "glass": "empty jar; wine bottle; cracked vase; honey jar; beer bottle; blue vase",
}
CASES = tuple(
    GepaExample(id=thing, params=({"thing": thing},), label=kind)
    for kind, things in THINGS.items()
    for thing in things.split("; ")
)


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score an answer, and say what was expected."""
    del session
    right = response.text == example.label
    said = "right" if right else f"expected `{example.label}`, the answer was `{response.text}`"
    return RolloutFeedback(score=float(right), feedback=said)


def job() -> OptimizationJob:
    """Return a run with the algorithm; ``promptgraft optimize bins.py:job`` takes it."""
    config = Rewrite(
        rollout_budget=100,
        pareto_set_size=6,
        target_section_paths=(("bins",),),
        training_examples=CASES,
        feedback_fn=feedback,
        rewrites=4,
        data=Data(shuffle=True),
    )
    return OptimizationJob(Prompt(BINS), OptimizationContext(OfflineAdapter()), config)


if __name__ == "__main__":
    found = job().run()
    print(f"embedded offline model: {found.baseline_pareto_mean} -> {found.best_pareto_mean}")

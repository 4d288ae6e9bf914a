"""The smallest whole use: improve a prompt, then use what was found.

``python first_steps.py`` improves it; ``python first_steps.py "a jam jar"`` then uses the winner.
"""

from __future__ import annotations

import sys
from enum import Enum

import attrs

from promptgraft import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    LocalPromptOverridesStore,
    MarkdownSection,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    Session,
)
from promptgraft.runtime import SessionProtocol

TAG = "bins-v1"


class Bin(Enum):
    """Where rubbish goes."""

    PAPER = "paper"
    GLASS = "glass"
    COMPOST = "compost"
    REST = "rest"


@attrs.frozen
class Rubbish:
    """What somebody wants to throw away."""

    thing: str


TEMPLATE = PromptTemplate[Bin](
    ns="examples/first",
    key="bins",
    output_type=Bin,
    sections=(
        MarkdownSection(
            title="Task",
            key="task",
            template=(
                "- paper: made of paper\n- glass: made of glass\n"
                "- compost: rots\n- rest: all the others"
            ),
        ),
        MarkdownSection(title="Rubbish", key="rubbish", template="$thing", params_type=Rubbish),
    ),
)

THINGS = {
    Bin.PAPER: (
        "last week's newspaper; a cardboard parcel; an old magazine; a torn envelope; "
        "a pile of newspapers; flattened cardboard; a magazine about boats; "
        "envelopes from the bank; "
        "a wet newspaper; a box of cardboard; the magazine of a club; unused envelopes; "
        "two newspapers"
    ),
    Bin.GLASS: (
        "an empty jam jar; a green wine bottle; a cracked vase; a jar of pickles, empty; "
        "two beer bottles; a jar that held honey; a bottle of olive oil; the vase from my aunt; "
        "a jar without a lid; an empty bottle; half a vase; a cracked jar; bottles of a party"
    ),
    Bin.COMPOST: (
        "apple peel; coffee grounds; wilted flowers; egg shells; "
        "peel of potatoes; grounds of yesterday's coffee; dead flowers; crushed shells; "
        "orange peel; damp coffee grounds; flowers from the grave; shells of nuts; peel of a pear"
    ),
    Bin.REST: (
        "a worn sponge; a full vacuum bag; broken pottery; a used plaster; "
        "an old dish sponge; the vacuum dust; pottery in pieces; a plaster with ointment; "
        "half a sponge; dust of the vacuum; a plate of pottery; an old plaster; a wet sponge"
    ),
}


def examples() -> tuple[GepaExample, ...]:
    """Return each thing with the right bin, the bins in turn."""
    rows = zip(*(things.split("; ") for things in THINGS.values()), strict=True)
    return tuple(
        GepaExample(id=thing, params=(Rubbish(thing),), label=right)
        for row in rows
        for right, thing in zip(THINGS, row, strict=True)
    )


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score 1 for the right bin, and say which one it was."""
    del session
    if response.output is example.label:
        return RolloutFeedback(score=1.0, feedback="right")
    expected = Bin(example.label).value
    return RolloutFeedback(
        score=0.0, feedback=f"expected `{expected}`, the answer was `{response.text}`"
    )


def improve() -> None:
    """Search for a better wording; the winner goes into the store, the source stays as it is."""
    store = LocalPromptOverridesStore()
    context = OptimizationContext(
        adapter=OfflineAdapter(), overrides_store=store, overrides_tag=TAG
    )
    config = GepaConfig(
        rollout_budget=300,
        minibatch_size=8,
        pareto_set_size=16,
        target_section_paths=(("task",),),
        training_examples=examples(),
        feedback_fn=feedback,
        seed=1,
    )
    result = GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))
    print(f"score:  {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}", end=" ")
    print(f"with {result.total_rollouts} rollouts")
    if result.persisted:
        print(f"stored: tag `{TAG}` in {store.root_path}")
    print(f"\n{result.best_section_overrides.get(('task',), 'nothing better was found')}")


def use(thing: str) -> None:
    """Sort one thing with the stored wording, and with the source."""
    improved = Prompt(TEMPLATE, overrides_store=LocalPromptOverridesStore(), overrides_tag=TAG)
    for name, prompt in (("source", Prompt(TEMPLATE)), ("improved", improved)):
        answer = OfflineAdapter().evaluate(prompt.bind(Rubbish(thing)), session=Session())
        print(f"{name}: {answer.text}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        use(" ".join(sys.argv[1:]))
    else:
        improve()

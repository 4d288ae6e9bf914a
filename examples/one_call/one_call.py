"""A search in one call, and what it returns: ``python one_call.py``."""

from __future__ import annotations

from enum import StrEnum

import promptgraft as pg
from promptgraft.evals import metrics


class Shelf(StrEnum):
    """Where a thing belongs."""

    KITCHEN = "kitchen"
    GARDEN = "garden"
    WORKSHOP = "workshop"


PROMPT = pg.PromptTemplate[Shelf](
    ns="examples/one-call",
    key="shelves",
    output_type=Shelf,
    sections=(
        pg.MarkdownSection(
            title="Shelves",
            key="shelves",
            template="- kitchen: cooking\n- garden: plants\n- workshop: repairs",
        ),
        # What is asked of each case; a search leaves it alone.
        pg.MarkdownSection(title="Thing", key="thing", template="$thing", overridable=False),
    ),
)

THINGS = {
    Shelf.KITCHEN: (
        "a cast-iron pan; a bread knife; a set of soup spoons; a small pan with a lid; "
        "a knife for cheese; wooden spoons; a frying pan; measuring spoons; a paring knife; "
        "a deep pan; a tray of spoons; a blunt knife"
    ),
    Shelf.GARDEN: (
        "a watering can; seeds of sunflowers; a rake without a handle; a green watering can; "
        "a bag of lawn seeds; a bamboo rake; a can of rain water; tomato seeds; a broad rake; "
        "a leaking watering can; a box of seeds; a rusty rake"
    ),
    Shelf.WORKSHOP: (
        "a claw hammer; a tin of screws; a hand saw; a rubber hammer; wood screws; "
        "a saw for metal; a hammer from my uncle; brass screws; a folding saw; a light hammer; "
        "a jar of old screws; a saw blade"
    ),
}


def cases() -> pg.Dataset:
    """Return every thing with its shelf; a file of cases is read by ``Dataset.load``."""
    return pg.Dataset.of(
        {"input": thing, "expected": shelf}
        for shelf, things in THINGS.items()
        for thing in things.split("; ")
    )


def main() -> None:
    """Improve the prompt and say what came of it."""
    splits = pg.Splits.by_ratio(cases(), train=0.4, validation=0.3, test=0.3)
    # `model="anthropic/claude-haiku-5-5"` and the like work the same way.
    result = pg.optimize(PROMPT, splits, [metrics.exact()], model="offline")
    unseen = result.held_out
    print(f"{result.verdict} after {result.total_rollouts} rollouts")
    if unseen is not None:
        print(f"on unseen things: {unseen.baseline_mean:.3f} -> {unseen.winner_mean:.3f}")
    for path, body in result.best_section_overrides.items():
        print(f"\n{'/'.join(path)}:\n{body}")


if __name__ == "__main__":
    main()

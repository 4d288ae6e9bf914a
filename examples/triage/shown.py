"""Let a search choose which worked tickets are shown: ``examples/triage/shown.py [SEED]``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import attrs
from task import TEMPLATE, Queue, Ticket, feedback, load_tickets

from promptgraft import (
    Data,
    GepaConfig,
    GepaExample,
    InMemoryPromptOverridesStore,
    OfflineAdapter,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptTemplate,
    Targets,
    TaskExample,
    TaskExamplesSection,
)

HERE = Path(__file__).parent
HELD_OUT = 107

# Before there were ten queues, there were four.
LAST_YEAR: Mapping[Queue, Queue] = {
    Queue.REFUNDS: Queue.BILLING,
    Queue.SALES_UPGRADE: Queue.BILLING,
    Queue.MOBILE_APP: Queue.SYNC,
    Queue.INTEGRATIONS_API: Queue.SYNC,
    Queue.DATA_PRIVACY: Queue.ACCOUNT_ACCESS,
    Queue.ABUSE_REPORT: Queue.ACCOUNT_ACCESS,
}


def template(tickets: Sequence[GepaExample]) -> PromptTemplate[Queue]:
    """Return the prompt with worked tickets: of today, and of last year, which mislead."""
    today = [worked(ticket, Queue(ticket.label)) for ticket in tickets[:10]]
    old = (ticket for ticket in tickets[10:] if Queue(ticket.label) in LAST_YEAR)
    last_year = [worked(ticket, LAST_YEAR[Queue(ticket.label)]) for ticket in islice(old, 40)]
    sections = (
        TaskExamplesSection(title="Worked tickets", key="worked", examples=today),
        TaskExamplesSection(title="Tickets of last year", key="last-year", examples=last_year),
    )
    *instructions, ticket = TEMPLATE.sections
    return attrs.evolve(TEMPLATE, key="triage-shown", sections=(*instructions, *sections, ticket))


def worked(ticket: GepaExample, queue: Queue) -> TaskExample:
    """Return a ticket as a worked example with that queue."""
    [param] = ticket.params
    assert isinstance(param, Ticket)
    return TaskExample(key=ticket.id, objective=param.message, outcome=queue)


def job(seed: int = 0) -> OptimizationJob:
    """Return what the run needs: a search that may only choose what is shown."""
    tickets = load_tickets(HERE / "train.jsonl")
    config = GepaConfig(
        rollout_budget=500 + 2 * HELD_OUT,
        minibatch_size=30,
        pareto_set_size=60,
        targets=Targets(visibility=(("worked",), ("last-year",))),
        training_examples=tickets[80:],
        feedback_fn=feedback,
        seed=seed,
        data=Data(held_out=load_tickets(HERE / "test.jsonl"), shuffle=True),
    )
    context = OptimizationContext(
        adapter=OfflineAdapter(), overrides_store=InMemoryPromptOverridesStore()
    )
    return OptimizationJob(Prompt(template(tickets[:80])), context, config)


def main(seed: int) -> None:
    """Search, and say what is no longer shown and what that changes."""
    search = job(seed)
    result = search.run()
    [hidden] = result.best_overrides.values()
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    if result.held_out and (gain := result.held_out.gain):
        print(f"held-out:   {gain.mean_before:.3f} -> {gain.mean_after:.3f}", end=" ")
        print(f"on {gain.cases} tickets; {gain.interval}")
    for part in hidden.visibilities.values():
        print(f"            {part.name}: {part.show()}")
    prompt = search.prompt
    assert isinstance(prompt, Prompt)
    store = InMemoryPromptOverridesStore([hidden])
    before, after = (
        len(each.with_placeholders().text)
        for each in (prompt, attrs.evolve(prompt, overrides_store=store))
    )
    print(f"characters: {before:,} -> {after:,}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

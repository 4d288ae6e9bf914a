"""Tune everything that an agent's prompt says: ``python agent_tuning.py [SEED]``.

Instructions, example calls of tools and worked examples change together; new worked examples are
written. A second run with the same seed takes every answer from its journal.
"""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path

import attrs

from promptgraft import (
    Data,
    Deadline,
    EventBus,
    FileJournal,
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
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.adapters.base import ToolInvoked
from promptgraft.algorithms.gepa import (
    GepaExampleGenerated,
    GepaMutationAccepted,
    GepaResult,
    ToolExampleTarget,
)
from promptgraft.ground.serde import canonical_json, unstructure
from promptgraft.runtime import SessionProtocol
from promptgraft.search import PersistenceScope

TAG = "parcels-v1"


class Cause(Enum):
    """Why a parcel is late."""

    ADDRESS = "address"
    CUSTOMS = "customs"
    WEATHER = "weather"


@attrs.frozen
class Delay:
    """The answer: why, and in which log it says so."""

    cause: Cause
    log: str


@attrs.frozen
class Question:
    """What a customer asks."""

    text: str


@attrs.frozen
class Search:
    """Parameters of ``search_logs``."""

    words: str


@attrs.frozen
class Found:
    """What ``search_logs`` returns."""

    log: str
    line: str


@attrs.frozen
class LogName:
    """Parameters of ``read_log``."""

    name: str


PARCELS = {
    "PX11": (Cause.ADDRESS, "north", "the street has no such house; the doorbell shows no name"),
    "PX12": (Cause.CUSTOMS, "harbour", "the duty is unpaid; an invoice for the tariff is missing"),
    "PX13": (Cause.WEATHER, "pass", "snow on the road; the lorry waits for the plough"),
    "PX14": (Cause.ADDRESS, "south", "the receiver moved away; the postcode is of another town"),
    "PX15": (Cause.CUSTOMS, "airport", "an inspector opened it; the permit for seeds expired"),
    "PX16": (Cause.WEATHER, "ferry", "the storm closed the port; waves are too high to sail"),
    "PX21": (Cause.ADDRESS, "east", "no house of that number in the street; no doorbell"),
    "PX22": (Cause.CUSTOMS, "border", "nobody paid the duty; the invoice names no tariff"),
    "PX23": (Cause.WEATHER, "valley", "the road is under snow; no plough before noon"),
    "PX24": (Cause.ADDRESS, "west", "the postcode is wrong; the receiver moved"),
    "PX25": (Cause.CUSTOMS, "station", "the inspector wants a permit; the seeds stay sealed"),
    "PX26": (Cause.WEATHER, "island", "the port is closed by a storm; no boat can sail the waves"),
    "PX31": (Cause.ADDRESS, "mill", "the doorbell is of another house in the street"),
    "PX32": (Cause.CUSTOMS, "quay", "the tariff is disputed; duty and invoice do not match"),
    "PX33": (Cause.WEATHER, "ridge", "the plough is stuck in the snow on the road"),
    "PX34": (Cause.ADDRESS, "lake", "moved without a trace; this postcode has no such receiver"),
    "PX35": (Cause.CUSTOMS, "hangar", "a permit expired; the inspector keeps the seeds"),
    "PX36": (Cause.WEATHER, "pier", "waves over the port; the storm lasts"),
}
VALIDATION, LEARNING, UNSEEN = "PX2", "PX1", "PX3"
# The list of all arrivals stands first and mentions every parcel, but says nothing about delays.
LOGS = {"arrivals.txt": "\n".join(f"scanned {number}" for number in PARCELS)} | {
    f"{depot}/held.txt": f"held {number}\n{why}" for number, (_, depot, why) in PARCELS.items()
}


def search_logs(params: Search) -> Found:
    """Return the first line that holds the words."""
    lines = ((name, line) for name, text in sorted(LOGS.items()) for line in text.split("\n"))
    return next((Found(name, line) for name, line in lines if params.words in line), Found("", ""))


def read_log(params: LogName) -> str:
    """Return a log.

    Raises:
        FileNotFoundError: there is none of this name.
    """
    if params.name not in LOGS:
        raise FileNotFoundError(f"there is no log `{params.name}`")
    return LOGS[params.name]


SEARCH: Tool[Search, Found] = Tool(
    name="search_logs",
    description="Search the logs.",
    params_type=Search,
    result_type=Found,
    handler=search_logs,
    examples=(
        ToolExample(
            description="Find the parcel `AB1`",
            input=Search("AB1"),
            output=Found("arrivals.txt", "scanned AB1"),
        ),
    ),
)
READ: Tool[LogName, str] = Tool(
    name="read_log",
    description="Read a log.",
    params_type=LogName,
    result_type=str,
    handler=read_log,
    examples=(
        ToolExample(
            description="Read the log `arrivals.txt`",
            input=LogName("arrivals.txt"),
            output="scanned AB1",
        ),
    ),
)
TEMPLATE = PromptTemplate[Delay](
    ns="examples/agents",
    key="parcels",
    output_type=Delay,
    sections=(
        MarkdownSection(
            title="Causes",
            key="causes",
            template="- address: a wrong address\n- customs: the customs\n- weather: bad weather",
            tools=(SEARCH, READ),
        ),
        TaskExamplesSection(
            title="Worked examples",
            key="cases",
            examples=(
                TaskExample(
                    key="late",
                    objective="Why is the parcel `AB1` late?",
                    steps=(
                        TaskStep(
                            tool_name="search_logs",
                            example=ToolExample(
                                description="find the parcel",
                                input=Search("AB1"),
                                output=Found("arrivals.txt", "scanned AB1"),
                            ),
                        ),
                    ),
                    outcome=Delay(Cause.ADDRESS, "arrivals.txt"),
                ),
            ),
        ),
        MarkdownSection(title="Question", key="question", template="$text", params_type=Question),
    ),
)


def questions(numbers: str) -> tuple[GepaExample, ...]:
    """Return two questions about each parcel whose number begins so."""
    asked = ("Why is the parcel `{}` late?", "A customer at the desk asks for news of `{}`.")
    return tuple(
        GepaExample(
            id=f"{number}/{kind}",
            params=(Question(text.format(number)),),
            label=(number, Delay(cause, f"{depot}/held.txt")),
        )
        for number, (cause, depot, _) in PARCELS.items()
        if number.startswith(numbers)
        for kind, text in enumerate(asked)
    )


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Give half a point for the cause and half for the log; show the calls that lead there."""
    del session
    match example.label, response.output:
        case (str(number), Delay() as right), Delay() as found:
            fields = (
                ("cause", right.cause.value, found.cause.value),
                ("log", right.log, found.log),
            )
        case _:
            return RolloutFeedback(score=0.0, feedback="the answer is no delay")
    said = [
        f"{name}: expected `{wanted}`, found `{given}`"
        for name, wanted, given in fields
        if wanted != given
    ]
    search, log = Search(f"held {number}"), LogName(right.log)
    calls = (("search_logs", search, search_logs(search)), ("read_log", log, read_log(log)))
    return RolloutFeedback(
        score=1 - len(said) / 2,
        feedback="\n".join(said) or "right",
        eval_trace="\n".join(show_call(*call) for call in calls),
    )


def show_call(name: str, params: object, result: object) -> str:
    """Return a call in three lines."""
    said = [canonical_json(unstructure(value)) for value in (params, result)]
    return f"[{name}]\n  params: {said[0]}\n  result: {said[1]}"


def show_example(example: GepaExample, response: PromptResponse[object] | None) -> tuple[str, str]:
    """Show the reflector a question as it was asked, and the answer."""
    asked = [param.text for param in example.params if isinstance(param, Question)]
    return "\n".join(asked), response.text if response else "no answer"


def show_trace(session: SessionProtocol) -> str:
    """Show the reflector the calls that returned something."""
    calls = session.select_all(ToolInvoked)
    return "\n".join(show_call(c.name, c.params, c.result) for c in calls if not c.error)


def tell(event: GepaMutationAccepted) -> None:
    """Print how much a new candidate gains."""
    gain = f"{event.parent_score:.2f} -> {event.child_score:.2f}"
    print(f"  step {event.step}: {event.module}: {gain} on the minibatch")


def tell_new(event: GepaExampleGenerated) -> None:
    """Print a worked example that the run wrote."""
    print(f"  step {event.step}: wrote `{event.key}`: {event.objective}")


def config(seed: int) -> GepaConfig:
    """Return the settings: what may change, on what data, and how it is shown and judged."""
    return GepaConfig(
        rollout_budget=400,
        minibatch_size=8,
        pareto_set_size=12,
        target_section_paths=(("causes",),),
        target_tool_examples=(
            ToolExampleTarget(tool_name="search_logs", example_index=0),
            ToolExampleTarget(tool_name="read_log", example_index=0),
        ),
        target_task_examples=(("cases", "late"),),
        enable_example_generation=True,
        max_task_examples_per_section=3,
        example_mutation_rate=0.5,
        data=Data(held_out=()),
        keep_anyway=True,  # the cases are too few to hold some out
        training_examples=questions(VALIDATION) + questions(LEARNING),
        feedback_fn=feedback,
        example_formatter=show_example,
        trace_formatter=show_trace,
        enable_merge=True,
        seed=seed,
        persist_scope=PersistenceScope.GLOBAL,
    )


def tune(seed: int, store: LocalPromptOverridesStore, journal: FileJournal) -> GepaResult:
    """Run the search and tell what happens."""
    bus = EventBus()
    bus.subscribe(GepaMutationAccepted, tell)
    bus.subscribe(GepaExampleGenerated, tell_new)
    context = OptimizationContext(
        adapter=OfflineAdapter(),
        reflection_adapter=OfflineAdapter(words_per_failure=4),
        overrides_store=store,
        overrides_tag=TAG,
        event_bus=bus,
        deadline=Deadline.after(60),
        journal=journal,
    )
    return GepaOptimizer(context, config(seed)).optimize(Prompt(TEMPLATE), session=Session())


def score(prompt: Prompt[Delay]) -> float:
    """Return the mean score on questions about parcels that no run has seen, 0 to 1."""
    total = 0.0
    unseen = questions(UNSEEN)
    for example in unseen:
        session = Session()
        response = OfflineAdapter().evaluate(prompt.bind(*example.params), session=session)
        total += feedback(example, response, session).score
    return total / len(unseen)


def main(seed: int) -> None:
    """Tune, say what changed, and compare on unseen questions."""
    store = LocalPromptOverridesStore()
    with FileJournal(Path(f"parcels-{seed}.jsonl")) as journal:
        recorded = len(journal)
        result = tune(seed, store, journal)
        print(f"{len(journal)} answers, {recorded} of them from the journal", end="; ")
    print(f"stopped: {result.stop_reason}")
    print(f"validation: {result.baseline_pareto_mean:.3f} -> {result.best_pareto_mean:.3f}")
    of_examples, merges = result.accepted_example_mutations, result.accepted_merges
    print(f"accepted:   {result.accepted_mutations}, {of_examples} of examples, {merges} merges")
    for generated in result.generated_task_examples:
        calls = [step["tool_name"] for step in json.loads(generated.steps_json)]
        print(f"new:        {generated.key}: {' then '.join(calls)}")
    if not result.persisted:
        print("nothing beat the baseline; nothing was stored")
        return
    winner = Prompt(TEMPLATE, overrides_store=store, overrides_tag=TAG)
    print(f"held-out:   {score(Prompt(TEMPLATE)):.3f} -> {score(winner):.3f}")
    print(f"winner:     tag `{TAG}` in {store.root_path}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

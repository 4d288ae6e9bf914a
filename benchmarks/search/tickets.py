"""Real texts: the tickets of ``examples/triage``, sorted by the embedded offline model.

The model is ``OfflineAdapter``, a small in-context learner and no language model. It reads three
texts that may be changed: a rule for each queue, conventions, and examples. The data are shuffled
and split anew by each seed.
"""

from __future__ import annotations

import functools
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from promptgraft import (
    GepaExample,
    MarkdownSection,
    OfflineAdapter,
    Prompt,
    PromptTemplate,
    Session,
)
from promptgraft.adapters.offline.writer import Tried
from search.phrases import rewrite
from search.reflecting import Habits, Reflector
from search.worlds import Item, Texts, Trial

TRIAGE = Path(__file__).parents[2] / "examples" / "triage"
sys.path.insert(0, str(TRIAGE))

from task import TEMPLATE, Queue, Ticket, load_tickets  # noqa: E402

TRAIN, VALIDATION = 120, 60
EXAMPLES = "examples"
QUEUES = tuple(queue.value for queue in Queue)

_SAID = re.compile(r"(\w+) is right, the answer was (\w+): (.*)")
_INPUT = TEMPLATE.sections[-1]


class TicketWorld:
    """Tickets, their queues, and a model that reads the prompt.

    Args:
        seed: decides what is learned from, compared on and kept for the test.
    """

    tools: tuple[str, ...] = ()

    def __init__(self, seed: int) -> None:
        self.seed = seed
        tickets = list(_tickets())
        random.Random(f"tickets/{seed}").shuffle(tickets)
        items = tuple(Item(ticket.id, ()) for ticket in tickets)
        self.train = items[:TRAIN]
        self.validation = items[TRAIN : TRAIN + VALIDATION]
        self.test = items[TRAIN + VALIDATION :]
        self._tickets: Mapping[str, GepaExample] = {ticket.id: ticket for ticket in tickets}
        self.first: dict[str, str] = {**_source(), EXAMPLES: "Tickets that were sorted rightly:"}
        self.calls = 0

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Sort a ticket."""
        self.calls += 1
        wanted = Queue(self._tickets[item.id].label).value
        given = self._sorted(texts, item)
        if given == wanted:
            return Trial(item, 1.0, f"right, it is {wanted}", "")
        said = f"{wanted} is right, the answer was {given}: {self._words(item)}"
        return Trial(item, 0.0, said, "")

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the share of the items that the texts sort rightly."""
        right = (Queue(self._tickets[i.id].label).value == self._sorted(texts, i) for i in items)
        return sum(right) / len(items)

    def _sorted(self, texts: Texts, item: Item) -> str:
        prompt = _prompt(tuple(texts.items())).bind(*self._tickets[item.id].params)
        return OfflineAdapter().evaluate(prompt, session=Session()).text

    def _words(self, item: Item) -> str:
        [ticket] = self._tickets[item.id].params
        assert isinstance(ticket, Ticket)
        return " ".join(f"{ticket.subject}. {ticket.message}".split())


class TicketReflector(Reflector):
    """The embedded model's reflections, spoiled by the habits of the simulated one.

    It writes tickets that went wrong under the examples, and their telling words into rules.
    """

    def __init__(self, habits: Habits, seed: int) -> None:
        super().__init__(habits, QUEUES, seed)

    def _teaches(self, said: str) -> bool:
        return bool(_SAID.fullmatch(said))

    def _at_fault(self, said: str, texts: Mapping[str, str]) -> str:
        del said
        return self.draw.choice(list(texts))

    def noted(self, module: str, lines: Sequence[str], feedback: Sequence[str]) -> list[str]:
        """Return the lines with what the wrong answers teach, some of it noted wrongly."""
        found = [said.groups() for one in feedback if (said := _SAID.fullmatch(one))]
        chosen = self.draw.sample(found, min(self.habits.lessons, len(found)))
        cases = [(self._action(wanted), given, words) for wanted, given, words in chosen]
        if module == EXAMPLES:
            return [*lines, *(f"- {wanted}: {words}" for wanted, _, words in cases)]
        return _rewritten("\n".join(lines), cases).splitlines()


def _rewritten(text: str, cases: Sequence[tuple[str, str, str]]) -> str:
    return rewrite(text, [Tried(words, wanted, given) for wanted, given, words in cases], QUEUES)


@functools.cache
def _tickets() -> tuple[GepaExample, ...]:
    return (*load_tickets(TRIAGE / "train.jsonl"), *load_tickets(TRIAGE / "test.jsonl"))


@functools.cache
def _source() -> Mapping[str, str]:
    """Return the sections of the example that may be changed, by key."""
    changed = {"queues", "conventions"}
    return {one.key: one.template for one in TEMPLATE.sections if one.key in changed}


@functools.lru_cache(maxsize=64)
def _prompt(texts: tuple[tuple[str, str], ...]) -> Prompt[Queue]:
    changed = (
        MarkdownSection(title=name.title(), key=name, template=text.replace("$", "$$"))
        for name, text in sorted(texts)
    )
    sections = (TEMPLATE.sections[0], *changed, _INPUT)
    return Prompt(
        PromptTemplate[Queue](ns="benchmarks", key="tickets", output_type=Queue, sections=sections)
    )

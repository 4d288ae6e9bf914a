"""Support tickets of Northwind Notes, and the prompt that sorts them into queues."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import attrs

from promptgraft import (
    GepaExample,
    MarkdownSection,
    Prompt,
    PromptResponse,
    PromptTemplate,
    ProviderAdapter,
    RolloutFeedback,
    Session,
)
from promptgraft.adapters.base import evaluated
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import parse_json
from promptgraft.ground.strict import structure
from promptgraft.runtime import SessionProtocol


class Queue(Enum):
    """Where a ticket goes."""

    BILLING = "billing"
    REFUNDS = "refunds"
    ACCOUNT_ACCESS = "account_access"
    SYNC = "sync"
    MOBILE_APP = "mobile_app"
    INTEGRATIONS_API = "integrations_api"
    DATA_PRIVACY = "data_privacy"
    FEATURE_REQUEST = "feature_request"
    SALES_UPGRADE = "sales_upgrade"
    ABUSE_REPORT = "abuse_report"


@attrs.frozen
class Ticket:
    """What a customer wrote, and the plan that the customer is on."""

    subject: str
    message: str
    plan: str


TEMPLATE = PromptTemplate[Queue](
    ns="examples/support",
    key="triage",
    name="Ticket triage",
    output_type=Queue,
    sections=(
        MarkdownSection(
            title="Role",
            key="role",
            template=(
                "You sort the support tickets of Northwind Notes, an app in which teams take notes "
                "and keep their files in step. Answer with the name of one queue and nothing else."
            ),
        ),
        MarkdownSection(
            title="Queues",
            key="queues",
            template="""\
- billing: anything about payments
- refunds: money back
- account_access: login trouble
- sync: sync trouble
- mobile_app: trouble with the phone app
- integrations_api: the API and integrations
- data_privacy: privacy and GDPR
- feature_request: ideas and wishes
- sales_upgrade: bigger plans
- abuse_report: abuse of the product""",
        ),
        MarkdownSection(
            title="Conventions",
            key="conventions",
            template="""\
Decide by what the customer wants from us, not by the part of the product that is mentioned.

- Money that should come back is refunds, any other question about money is billing.
- Something that only goes wrong on a phone is mobile_app, even if it looks like sync.
- A wish is feature_request, whatever part of the product it is about.""",
        ),
        MarkdownSection(
            title="Ticket",
            key="ticket",
            template="Plan: $plan\nSubject: $subject\n\n$message",
            overridable=False,
            params_type=Ticket,
        ),
    ),
)


@attrs.frozen
class _Row:
    id: str
    subject: str
    message: str
    plan: str
    queue: Queue


def load_tickets(path: Path) -> tuple[GepaExample, ...]:
    """Read tickets from a file with one JSON object a line; their queues become the labels.

    Raises:
        DataFormatError: naming file and line.
    """
    examples: dict[str, GepaExample] = {}
    for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = structure(parse_json(line, where=where), _Row, where=where)
        if row.id in examples:
            raise DataFormatError(f"{where}: the id `{row.id}` occurs twice; make ids unique")
        ticket = Ticket(row.subject, row.message, row.plan)
        examples[row.id] = GepaExample(id=row.id, params=(ticket,), label=row.queue)
    return tuple(examples.values())


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score an answer: 1 for the right queue, 0 for any other."""
    del session
    expected = Queue(example.label).value
    if response.output is example.label:
        return RolloutFeedback(score=1.0, feedback=f"`{expected}` is right")
    return RolloutFeedback(
        score=0.0, feedback=f"expected `{expected}`, the answer was `{response.text}`"
    )


def score(
    prompt: Prompt[Queue], examples: Sequence[GepaExample], adapter: ProviderAdapter
) -> float:
    """Return the share of ``examples`` that ``prompt`` sorts rightly, 0 to 1."""
    right = 0
    for example in examples:
        response = evaluated(adapter, prompt.bind(*example.params), session=Session())
        right += response.output is example.label
    return right / len(examples)

"""What is asked of an answer, and a scripted stand-in for a reflection model."""

import re

import promptgraft as pg
from promptgraft.evals.types import Answer, Case

COMMON = (
    "about again could from have hello help last need please question this week what with wrong"
)


def routed(case: Case, answer: Answer) -> tuple[float, str]:
    """The right team was chosen; if not, say by what it could have been known."""
    if answer.text.startswith(f"Team: {case.expected}\n"):
        return 1.0, "the right team"
    words = [
        w for w in re.findall(r"[a-z]{4,}", str(case.input).lower()) if w not in COMMON.split()
    ]
    return 0.0, f"router lacks: - {case.expected}: {' '.join(words)}"


def kind(case: Case, answer: Answer) -> tuple[float, str]:
    """The reply thanks, says when an answer comes, and ends as it should."""
    del case
    faults = {
        "Thank you": "writer lacks: Thank them for the message.",
        "within a day": "writer lacks: Say that we answer within a day.",
        "Kind regards": "tone lacks: Kind regards, your support team",
    }
    found = [fault for word, fault in faults.items() if word not in answer.text]
    return 1 - len(found) / len(faults), "; ".join(found) or "kind"


def stand_in(asked: pg.RenderedPrompt[object]) -> str:
    """Reply as a reflection model might: with the text, and what failures say that it lacks."""
    shown = re.compile(r"part is: section (\w+)\s+```\w*\n(.*?)\n```", re.DOTALL)
    name, text = shown.findall(asked.text)[0]
    lacking = dict.fromkeys(re.findall(rf"\b{name} lacks: ([^;\n]+)", asked.text))
    return "\n".join(["```instruction", text, *lacking, "```"])


REFLECTION = pg.ScriptedAdapter(stand_in, identity="stand-in/1")

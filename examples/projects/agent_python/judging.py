"""What is asked of an answer, and a stand-in for a reflection model, so that nothing is paid."""

import re

from promptgraft import ScriptedAdapter
from promptgraft.evals.types import Answer, Case
from promptgraft.prompt import RenderedPrompt


def right_team(case: Case, answer: Answer) -> tuple[float, str]:
    """The right team was named; if not, say by which words it could have been known."""
    if answer.text == case.expected:
        return 1.0, "the right team"
    words = " ".join(re.findall(r"[a-z]{4,}", str(case.input).lower()))
    return 0.0, f"{answer.text} does nothing here; known by: - {case.expected}: {words}"


def stand_in(asked: RenderedPrompt[object]) -> str:
    """Add to the text what failures say, as a model might; a real one writes better rules."""
    [text] = re.findall(r"part is: section \w+\s+```\w*\n(.*?)\n```", asked.text, re.DOTALL)[:1]
    lacking = dict.fromkeys(re.findall(r"known by: (- [^\n]+)", asked.text))
    return "\n".join(["```instruction", text, *lacking, "```"])


REFLECTION = ScriptedAdapter(stand_in, identity="stand-in/1")

"""The agent: a function that is asked with a report and the texts of one candidate."""

from promptgraft.agents import AgentCall
from triage import team_for


async def answer(report: str, call: AgentCall) -> str:
    """Name the team that has to act."""
    return team_for(report, call.texts["teams"])

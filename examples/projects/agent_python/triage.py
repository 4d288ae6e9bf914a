"""What the agent does with a report and its texts; a model would be asked here."""

import re
from collections import Counter


def team_for(report: str, teams: str) -> str:
    """Return the team whose lines in ``teams`` have the most words of the report."""
    said, known = set(re.findall(r"[a-z]+", report.lower())), Counter[str]()
    for team, words in re.findall(r"(?m)^- (\w+): (.*)$", teams.lower()):
        known[team] += len(said & set(re.findall(r"[a-z]+", words)))
    [(team, _)] = known.most_common(1) or [("nobody", 0)]
    return team

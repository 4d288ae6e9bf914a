"""The agent: a command that reads its texts out of a folder, as coding agents do."""

import sys
from pathlib import Path

from triage import team_for

folder, report = sys.argv[1:]
print(team_for(report, Path(folder, "prompts/teams.md").read_text("utf-8")))

"""A command that reads its skill from a folder: ``python command_line.py FOLDER QUERY``.

It stands in for a coding CLI, which finds ``CLAUDE.md`` and ``.claude/skills`` in the folder that
it is started for.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

folder, query = Path(sys.argv[1]), sys.argv[2]
skills = [path.read_text("utf-8") for path in sorted(folder.glob(".claude/skills/*/SKILL.md"))]
asked = {
    "model": os.environ["AGENT_MODEL"],
    "messages": [
        {"role": "system", "content": "\n\n".join(skills)},
        {"role": "user", "content": query},
    ],
}
request = urllib.request.Request(  # noqa: S310 - the address is the user's own
    f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
    data=json.dumps(asked).encode(),
    headers={
        "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
    print(json.load(reply)["choices"][0]["message"]["content"])

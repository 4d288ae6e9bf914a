"""What scripted reflection models reply about parts with several fields."""

from __future__ import annotations

import json


def json_reply(**fields: object) -> str:
    """Return a reply with one JSON object in a block."""
    return f"```json\n{json.dumps(fields, ensure_ascii=False)}\n```"

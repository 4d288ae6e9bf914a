"""What the tool of the agent does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FLEET = Path(__file__).with_name("data") / "fleet.json"


def find_bike(params: Any) -> dict[str, str]:
    """Say at which dock a bike stands; `params` has the fields that `tools.yaml` names."""
    docks: dict[str, str] = json.loads(FLEET.read_text("utf-8"))
    return {"bike": params.bike, "dock": docks[params.bike]}

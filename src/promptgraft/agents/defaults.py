"""What settings of agents are where they are not given."""

from __future__ import annotations

from typing import Literal

AGENTS_NS = "agents"
"""The default namespace of agents' prompts."""

DEFAULT_TURNS = 8
"""Default limit on the turns of a conversation with a simulated user."""

OnAgentError = Literal["zero", "unscored", "stop"]
"""The effect of an agent's failure: the rollout scores 0 or stays unscored, or the run stops."""

"""Optimization of weakincentives prompts with its own adapters, sessions and overrides store.

Needs ``pip install "promptgraft[weakincentives]"`` and Python 3.12.2 or newer.
"""

from __future__ import annotations

from promptgraft.bridges.weakincentives.target import (
    SectionBody,
    ToolDescription,
    WeakIncentivesTarget,
)

__all__ = ["SectionBody", "ToolDescription", "WeakIncentivesTarget"]

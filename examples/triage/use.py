"""Render the improved prompt: all that it needs is the template, the store and the tag."""

from __future__ import annotations

from task import TEMPLATE, Ticket

from promptgraft import LocalPromptOverridesStore, Prompt

prompt = Prompt(
    TEMPLATE, overrides_store=LocalPromptOverridesStore(), overrides_tag="triage-v1"
).bind(Ticket("Charged twice", "Two payments for one month, please send one back.", "team"))
rendered = prompt.render()

print(rendered.text)
print(f"\nsections improved: {len(rendered.applied)}; overrides skipped: {len(rendered.skipped)}")

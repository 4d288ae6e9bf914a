"""What is said of a tool and its parameters: a few named texts."""

from __future__ import annotations

import attrs

from promptgraft.parts.entry import UNBOUND
from promptgraft.parts.tool import ToolOverride
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.view import View
from promptgraft.targets.replies import read_said, write_said
from promptgraft.targets.types import MetaPrompt, ModuleDescription

_DESCRIPTION = "description"


@attrs.frozen
class ToolModule(PromptModule):
    """What is said of one tool and its parameters."""

    tool_name: str

    @property
    def blank(self) -> ToolOverride:
        return ToolOverride(name=self.tool_name, expected_hash=UNBOUND)

    def describe(self, view: View) -> ModuleDescription:
        return self.described(
            view,
            meta_prompt=MetaPrompt.TOOL,
            title=self.tool_name,
            text=write_said(self._said(view)),
            schema=f"Parameters: {view.params_schema(self.tool_name)}",
        )

    def read(self, view: View, text: str) -> ToolOverride:
        now = self._said(view)
        said = {**now, **read_said(text, now)}
        params = {name: said[_param(name)] for name in view.tool(self.tool_name).param_descriptions}
        return attrs.evolve(
            self.blank,
            description=said[_DESCRIPTION] or None,
            param_descriptions={name: text for name, text in params.items() if text},
        )

    def _said(self, view: View) -> dict[str, str]:
        now = view.tool(self.tool_name)
        params = {_param(name): text for name, text in now.param_descriptions.items()}
        return {_DESCRIPTION: now.description, **params}


def _param(name: str) -> str:
    return f"param {name}"

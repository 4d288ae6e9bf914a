"""The embedded model of dry runs."""

from __future__ import annotations

from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.prompt.rendered import RenderedPrompt


class DryAdapter(OfflineAdapter):
    """Answers prompts for free text with their inputs, so that all around the model is tried."""

    def answer_freely(self, rendered: RenderedPrompt[object]) -> str:
        """Return the values of the placeholders of a prompt, or its text if it has none.

        Raises:
            ConfigError: the prompt wants another type.
        """
        if rendered.output_type not in (str, None):
            return super().answer_freely(rendered)
        segments = (segment for section in rendered.sections for segment in section.segments)
        values = [segment.text for segment in segments if segment.placeholder is not None]
        return "\n".join(values) or rendered.text

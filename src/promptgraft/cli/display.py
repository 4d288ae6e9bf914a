"""How the progress of a run is displayed: as a panel, as lines, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from promptgraft.cli.output import is_plain_terminal
from promptgraft.cli.progress import PlainProgress, Progress


def progress_for(
    title: str,
    *,
    quiet: bool,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Progress:
    """Return a panel on a terminal, plain lines elsewhere, and no progress if ``quiet``.

    If ``stream``, which gets the events as JSON, is a terminal, they are the progress.
    """
    # Two outputs on one terminal would write into each other.
    if quiet or (stream is not None and stream.isatty()):
        return Progress()
    if sys.stderr is None or not sys.stderr.isatty() or is_plain_terminal(environment):
        return PlainProgress(title)
    from promptgraft.cli.panel import PanelProgress

    return PanelProgress(title)

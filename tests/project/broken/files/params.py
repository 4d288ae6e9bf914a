"""Parameters that cannot be made of every case."""

from __future__ import annotations

from promptgraft.evals.types import Case


def broken(case: Case) -> dict[str, object]:
    """Return the parameters of some cases."""
    return {"text": {"t0": case.input}[case.id]}

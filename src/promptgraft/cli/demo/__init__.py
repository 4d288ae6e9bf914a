"""``promptgraft demo``: the triage example, improved by the embedded offline model."""

"""``promptgraft apply``: what a run has found goes where it is used."""

"""The algorithms that improve a target; each is found by its name."""

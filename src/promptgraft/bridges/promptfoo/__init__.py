"""Import of configurations of promptfoo."""

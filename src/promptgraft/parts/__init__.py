"""The parts of a prompt that may be replaced: one module for each kind."""

"""BAML projects: their functions as prompts, and their tests as cases and metrics."""

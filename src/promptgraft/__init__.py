"""Improve the prompts of AI agents on real examples."""

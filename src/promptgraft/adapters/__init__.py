"""Adapters: what answers prompts."""

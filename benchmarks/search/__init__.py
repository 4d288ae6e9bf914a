"""Searches on simulated worlds, beside gepa."""

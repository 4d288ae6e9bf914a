"""GEPA: reflective mutation, Pareto coverage, ancestry-based merge."""

"""Calls of models over HTTP, for every provider."""

"""Calling a model over HTTP, whoever its provider is."""

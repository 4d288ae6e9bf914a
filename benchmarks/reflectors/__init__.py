"""Reflection models that read a question as a language model does, and worlds to try them on."""

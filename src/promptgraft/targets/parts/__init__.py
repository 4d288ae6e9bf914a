"""What a search may change in a prompt: one module for each kind of part.

Stores and rendering know a kind by its override (:mod:`promptgraft.parts`); here is how a reflector
is shown it, and how a reply becomes an override.
"""

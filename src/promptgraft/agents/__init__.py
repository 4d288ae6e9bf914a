"""Agents that can only be called: their texts, how these reach them, and what they answer."""

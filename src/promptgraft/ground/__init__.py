"""The lowest layer: what everything else stands on, and what knows nothing of prompts."""

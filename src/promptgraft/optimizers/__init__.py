"""How prompts improve."""

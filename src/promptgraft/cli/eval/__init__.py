"""The command ``promptgraft eval``."""

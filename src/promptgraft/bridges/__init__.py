"""Bridges to other tools and frameworks; the core imports none of them."""

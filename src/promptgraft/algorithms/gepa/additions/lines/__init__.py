"""Lines of a prompt: which helped, which do not work, and which stand in the wrong part."""

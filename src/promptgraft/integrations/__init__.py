"""Where promptgraft is plugged into other tools."""

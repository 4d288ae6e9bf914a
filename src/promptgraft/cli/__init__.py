"""The command line (``specs/cli.md``)."""

"""``python -m promptgraft``."""

from promptgraft.cli.main import main

main()

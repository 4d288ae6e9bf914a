"""``python -m promptgraft``."""

from promptgraft.cli.main import main

if __name__ == "__main__":
    main()

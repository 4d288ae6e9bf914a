"""``python -m promptgraft``, and the command ``promptgraft``."""

import os
import signal


def main() -> None:
    """Run the command line of this process; Ctrl+C ends it in one line, also while it starts."""
    # An exception could be lost in an import; where the signal is ignored, it stays so.
    starts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if starts:
        signal.signal(signal.SIGINT, _interrupted)
    from promptgraft.cli.main import main as carry_out

    if starts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        carry_out()
    except KeyboardInterrupt:
        _interrupted()


def _interrupted(*_: object) -> None:
    os.write(2, b"promptgraft: interrupted\n")
    os._exit(3)  # ExitCode.STOPPED_EARLY


if __name__ == "__main__":
    main()

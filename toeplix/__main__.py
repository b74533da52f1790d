"""The entry point of the command line: `toeplix`, and `python -m toeplix`."""

import signal


def main() -> None:
    """Import the commands, which takes seconds, and run one of them.

    Until then there is nothing to clean up: Ctrl-C ends the process as it ends any other, silently.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not if it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from toeplix.cli.main import main as command

    signal.signal(signal.SIGINT, before)
    command()


if __name__ == "__main__":
    main()

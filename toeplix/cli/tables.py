"""The console on which commands print tables: all of them fit 100 columns."""

import os

from rich.console import Console

WIDTH = 100  # columns where there is no terminal and none are given in $COLUMNS


def table_console() -> Console:
    """Return a console as wide as the terminal or $COLUMNS; a file or pipe has 100 columns."""
    console = Console(highlight=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        return console
    return Console(width=WIDTH, highlight=False)

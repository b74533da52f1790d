"""`python -m toeplix` is the command line."""

from toeplix.cli import main

main()

"""`python -m toeplix` is the command line."""

from toeplix.cli.main import main

main()

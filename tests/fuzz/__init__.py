"""Hostile input for everything that the program reads: `make fuzz`, or `python -m tests.fuzz --help`.

isolation.py      a mount namespace in which nothing but a scratch directory can be written
forking.py        a command in a forked child, observed as a shell would: many cases a second
fixtures.py       a tiny store, run, checkpoint, benchmark ..., made once
mutators.py       JSON and bytes, changed in the ways in which files are really damaged
formats.py        safetensors and archives, changed inside their structure
targets.py        what is read by which command, and what must be true afterwards
benchmarks.py     the same for published benchmark files
asking.py         pages of the explorer and answers of the server over damaged files
file_cases.py     cases of kind `files`
command_lines.py  a command line that works for every subcommand, and values that do not belong
command_cases.py  cases of kind `commands`, from the options that the program itself declares
oracles.py        the outcome of a case; checks.py: whether a result is right
reproducers.py    failing cases as directories, smaller ones, and running them again
campaign.py       cases side by side until the time is over, and their counts
kinds.py          all kinds by name
"""

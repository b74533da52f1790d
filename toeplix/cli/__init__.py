"""Commands of the command line, a file a group."""

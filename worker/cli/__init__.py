"""The command line: one module a command, each found by its name."""

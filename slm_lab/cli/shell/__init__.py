"""The surroundings of a command: the shell, signals, exit codes, the program that
called it."""

"""The output of commands: live tables, lines and windows, and standard streams that
never fail."""

"""What commands show: live tables, lines and windows, and standard streams that never
fail."""

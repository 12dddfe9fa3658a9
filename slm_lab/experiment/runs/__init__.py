"""Lists, compares and deletes run folders."""

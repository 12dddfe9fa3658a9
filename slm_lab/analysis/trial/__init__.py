"""Graphs of a Session, a Trial and the Trials of a search."""

"""The optimizer room: the flat vector, the update rules, and where parallel modes hook
in."""

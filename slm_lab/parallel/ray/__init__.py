"""Sessions and actors on the nodes of a Ray cluster."""

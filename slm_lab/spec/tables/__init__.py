"""Tables of words: those of other libraries, and those of torch."""

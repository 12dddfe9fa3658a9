"""A benchmark: the rows of a suite, trained with several seeds; its data and tables."""

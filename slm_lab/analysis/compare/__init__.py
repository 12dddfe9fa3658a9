"""One spec trained in several modes, compared."""

"""A search: a searcher proposes the specs of trials, a scheduler may stop trials
early."""

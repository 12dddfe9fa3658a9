"""More than one training, or one: policies over one driver of trials."""

"""What a Session writes down: rows of numbers, from steps and learner reports to a CSV."""

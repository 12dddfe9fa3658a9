"""Treatment of a run: short forks, each with one remedy for what the doctor found."""

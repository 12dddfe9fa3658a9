"""Sessions, Trials and what surrounds them: launching, checkpoints, the run folder."""

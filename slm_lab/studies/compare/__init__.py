"""`slm-lab compare`: one spec in several modes, run one after the other."""

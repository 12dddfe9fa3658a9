"""`slm-lab board`: all runs of a data folder on one live page. It only reads."""

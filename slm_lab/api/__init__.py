"""The lab from Python: the names that `import slm_lab` offers."""

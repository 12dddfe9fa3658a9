"""Diagnoses of a run or a machine: findings, each with its evidence and one thing to
try."""

"""Runs of the past: their sources, their comparison, and the history of this machine."""

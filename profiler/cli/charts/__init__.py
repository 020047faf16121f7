"""Drawings of a run that several commands print: curves over time, and the bar of where the time went."""

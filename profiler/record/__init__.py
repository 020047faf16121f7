"""The record of a run, its numbers and its forms as text. Imports nothing of ours but core."""

"""The local history of runs."""

"""Two sets of runs, metric by metric: medians, the change with its interval, and a verdict."""

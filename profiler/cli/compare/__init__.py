"""``task-profiler compare``: two sets of runs, metric by metric."""

"""``task-profiler setup``: from an installed wheel to an account that reports, in four steps."""

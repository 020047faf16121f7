"""``task-profiler recommend``."""

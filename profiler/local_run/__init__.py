"""``task-profiler run``: starts, samples and supervises a local command, and builds its record."""

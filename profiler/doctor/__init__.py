"""``task-profiler doctor``: what can be measured here, and what to change where something is missing."""

"""What ``task-profiler run`` needs besides run.py: starting and supervising the command, its record and course."""

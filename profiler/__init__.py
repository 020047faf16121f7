"""Task Profiler: the REPORT line that Amazon ECS does not print."""

__version__ = "0.1.0"

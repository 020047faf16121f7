"""Live metrics for Prometheus. This package is imported only if TASK_PROFILER_PROMETHEUS_PORT is set.

snapshot.py      an immutable snapshot of the main loop's readings, taken after each tick prometheus_metrics.py  the
live metrics: name, type, labels and help, and their values in a snapshot as text exporter.py      GET /metrics over
HTTP, in its own thread
"""

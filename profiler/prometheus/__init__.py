"""Live metrics for Prometheus. This package is imported only if TASK_PROFILER_PROMETHEUS_PORT is set.

snapshot.py      an immutable snapshot of the main loop's readings, taken after each tick
prometheus_metrics.py  the live metrics: name, type, labels and help, and their values in a snapshot
exposition.py    a snapshot in Prometheus' text format
server.py        GET /metrics over HTTP, in its own threads
exporter.py      combines these for the monitor
"""

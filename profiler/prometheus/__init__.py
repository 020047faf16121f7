"""Live metrics for Prometheus. This package is imported only if TASK_PROFILER_PROMETHEUS_PORT is set.

snapshot.py   immutable snapshots of the main loop's readings, one after each tick
metrics.py    the live metrics: name, type, labels, and getter of the values in a snapshot
text.py       a snapshot in Prometheus' text format
server.py     GET /metrics over HTTP, in its own threads
exporter.py   combines these for the monitor
"""

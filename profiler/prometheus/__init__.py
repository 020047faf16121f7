"""Live metrics for Prometheus. Nothing of this is imported unless TASK_PROFILER_PROMETHEUS_PORT is set.

gather.py      the main loop's knowledge → an immutable Snapshot, after each tick
catalogue.py   what is shown of a Snapshot: names, types, labels
text.py        a Snapshot as the text that Prometheus reads
rendered.py    that text, kept for all who scrape the same Snapshot
connection.py  a client's connection, bounded in bytes and time
server.py      GET /metrics, in threads of its own
exporter.py    holds them together for the monitor
"""

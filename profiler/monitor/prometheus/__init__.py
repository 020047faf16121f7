"""Live metrics for Prometheus.

This package is imported only if TASK_PROFILER_PROMETHEUS_PORT is set.
"""

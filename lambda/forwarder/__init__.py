"""Moves run reports from CloudWatch Logs to Elasticsearch or OpenSearch, and posts notices of stopped tasks.

    forward_logs:  payload ──> lines ──> documents ──> delivery ──> cluster
                                                          └───────> failure store
    task_stopped:  event ──> containers, outcome, report ──> document ──> cluster
                                                        └──> notice ──> channel

Of the profiler, this package imports only what its zip contains: ``profiler.core`` and ``profiler.record``. An
architecture test enforces this.
"""

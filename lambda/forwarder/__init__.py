"""Moves run reports from CloudWatch Logs to Elasticsearch or OpenSearch, and posts notices of stopped tasks.

    forward_logs:  payload ──> lines ──> documents ──> delivery ──> search cluster
                                                          └───────> failure store
    task_stopped:  event ──> containers, outcome, report ──> document ──> search cluster
                                                        └──> notice ──> channel

The only packages of the profiler that it imports are those in its zip: ``profiler.core`` and ``profiler.record``. An
architecture test enforces this.
"""

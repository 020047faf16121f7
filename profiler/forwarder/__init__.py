"""Moves run reports from CloudWatch Logs to Elasticsearch or OpenSearch, and posts notices of stopped tasks.

    forward_logs:  payload ──> lines ──> documents ──> delivery ──> search cluster
                                                          └───────> failure store
    task_stopped:  event ──> containers, outcome, report ──> document ──> search cluster
                                                        └──> notice ──> channel

It imports only what its zip ships. An architecture test enforces this.
"""

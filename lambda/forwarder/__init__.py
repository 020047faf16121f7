"""Brings the reports from CloudWatch Logs into Elasticsearch or OpenSearch.

    payload ──> lines ──> documents ──> delivery ──> cluster
                                          └────────> failure store

Beside itself this package imports only ``profiler.record.model``.
"""

"""Moves reports from CloudWatch Logs to a search cluster, and posts notices.

Imports only what its zip ships.
"""

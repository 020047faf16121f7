"""Past runs, from the local history, files, the search cluster and CloudWatch Logs, and what
happened to them.
"""

"""``task-profiler doctor``: this container, a task definition, a cluster, or a deployed
forwarder.
"""

"""What works and what to change: in a task, in a task definition before the first run, and in a
deployed forwarder.
"""

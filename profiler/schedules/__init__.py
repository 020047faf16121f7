"""Schedules that start tasks: when their runs are due, and what became of each due time."""

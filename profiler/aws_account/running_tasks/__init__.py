"""The tasks that run now: found in log groups and in ECS clusters, with their usual durations."""

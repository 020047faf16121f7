"""``task-profiler taskdef``: task definitions in files, standard input and Amazon ECS."""

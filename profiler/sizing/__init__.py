"""From past runs to the size a task should have, and what a run cost: fargate.py and rightsizing.py decide."""

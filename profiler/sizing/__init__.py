"""From past runs to the size that a task should have, and the cost of a run."""

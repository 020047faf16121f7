"""Functions that build the dashboard's PromQL expressions."""

from typing import Final

_SELECTED_TASKS: Final = '{task_family=~"$family",task_id=~"$task"}'
_RATE: Final = "[$__rate_interval]"
TASK: Final = "task_family, task_id"
TASK_NAME: Final = "{{task_family}} {{task_id}}"
CONTAINER_NAME: Final = "{{task_family}} {{container}} {{task_id}}"


def metric(name: str) -> str:
    """The series of the selected tasks."""
    return f"task_profiler_{name}{_SELECTED_TASKS}"


def rate(name: str) -> str:
    """The increase of a counter per second."""
    return f"rate({metric(name)}{_RATE})"


def per_task(name: str) -> str:
    """The increase of a counter per second, summed over all series of a task."""
    return f"sum by ({TASK}) ({rate(name)})"


def share(used: str, size: str) -> str:
    """The used share of a size."""
    return f"{metric(used)} / {metric(size)}"

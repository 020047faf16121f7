"""The parts that the dashboard's queries are put together from."""

from typing import Final

_CHOSEN: Final = '{task_family=~"$family",task_id=~"$task"}'
_RATE: Final = "[$__rate_interval]"
TASK: Final = "task_family, task_id"
TASK_NAME: Final = "{{task_family}} {{task_id}}"
CONTAINER_NAME: Final = "{{task_family}} {{container}} {{task_id}}"


def metric(name: str) -> str:
    """The series of the chosen tasks."""
    return f"task_profiler_{name}{_CHOSEN}"


def rate(name: str) -> str:
    """Growth a second of a counter."""
    return f"rate({metric(name)}{_RATE})"


def per_task(name: str) -> str:
    """Growth a second, summed over what a task has several of."""
    return f"sum by ({TASK}) ({rate(name)})"


def share(used: str, size: str) -> str:
    """What is used of what there is."""
    return f"{metric(used)} / {metric(size)}"

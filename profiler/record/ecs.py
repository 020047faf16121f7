"""What ECS calls things: ARNs, task IDs, clusters, containers and log streams."""

_ARN_PARTS = 6  # arn:partition:service:region:account:resource


def task_id(arn: str | None) -> str:
    """The last part of a task's ARN: ``task/CLUSTER/ID``, in old accounts ``task/ID``."""
    return (arn or "unknown").rsplit("/", 1)[-1]


def cluster_name(cluster: str | None) -> str | None:
    """The endpoint gives a cluster by name or by ARN: the name."""
    return cluster.rsplit("/", 1)[-1] if cluster else None


def arn_part(arn: str | None, position: int) -> str | None:
    """One of the colon-separated parts of an ARN."""
    parts = (arn or "").split(":", _ARN_PARTS - 1)
    return parts[position] or None if len(parts) == _ARN_PARTS else None

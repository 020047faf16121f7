"""Log groups by their names: groups that match a pattern, and groups of monitors that have their own log stream."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import glob_prefix
from profiler.core.errors import TaskProfilerError


def matching_log_groups(open_client: OpenClient, names: Iterable[str]) -> tuple[str, ...]:
    """The log groups that match the names, which may have the wildcards ``*``, ``?`` and ``[]``.

    AWS is asked only for names with a wildcard. Raises TaskProfilerError if one of them matches no group.
    """
    return tuple(dict.fromkeys(group for name in names for group in _matching(open_client, name)))


def _matching(open_client: OpenClient, name: str) -> Iterable[str]:
    prefix = glob_prefix(name)
    if prefix == name:
        return (name,)
    listed = (str(group["logGroupName"]) for group in listed_groups(open_client, prefix))
    found = [group for group in listed if fnmatchcase(group, name)]
    if not found:
        raise TaskProfilerError(f"No log group matches {name!r}: check --log-group, --region and --profile.")
    return found


def listed_groups(open_client: OpenClient, prefix: str) -> Iterator[Mapping[str, object]]:
    """The log groups whose name begins with the prefix, as DescribeLogGroups returns them. Raises TaskProfilerError."""
    start = {"logGroupNamePrefix": prefix} if prefix else {}
    with aws_errors("The log groups could not be read", "logs:DescribeLogGroups"):
        for page in open_client("logs").get_paginator("describe_log_groups").paginate(**start):
            yield from page["logGroups"]


def create_log_group(open_client: OpenClient, name: str) -> bool:
    """Create the group: ECS starts no container whose log group is missing. Returns False if it exists already."""
    logs = open_client("logs")
    with aws_errors(f"The log group {name!r} was not created, so no revision was registered"):
        try:
            logs.create_log_group(logGroupName=name)
        except logs.exceptions.ResourceAlreadyExistsException:
            return False
    return True

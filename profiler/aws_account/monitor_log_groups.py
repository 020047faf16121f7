"""Log groups by their names: those that match a pattern, and those of monitors that have their own log stream."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.errors import TaskProfilerError

_WILDCARDS = re.compile(r"[*?\[]")


def matching_log_groups(open_client: OpenClient, names: Iterable[str]) -> tuple[str, ...]:
    """The log groups that match the names, which may have the wildcards ``*``, ``?`` and ``[]``.

    AWS is asked only for names with a wildcard.

    Raises:
        TaskProfilerError: if the groups cannot be listed, or if a name with a wildcard matches none.
    """
    return tuple(dict.fromkeys(group for name in names for group in _matching(open_client, name)))


def _matching(open_client: OpenClient, name: str) -> Iterable[str]:
    prefix = _WILDCARDS.split(name, maxsplit=1)[0]
    if prefix == name:
        return (name,)
    found = [group for group in _listed(open_client, prefix) if fnmatchcase(group, name)]
    if not found:
        raise TaskProfilerError(f"No log group matches {name!r}: check --log-group, --region and --profile.")
    return found


def _listed(open_client: OpenClient, prefix: str) -> Iterator[str]:
    start = {"logGroupNamePrefix": prefix} if prefix else {}
    with aws_errors("The log groups could not be read", "logs:DescribeLogGroups"):
        for page in open_client("logs").get_paginator("describe_log_groups").paginate(**start):
            yield from (group["logGroupName"] for group in page["logGroups"])


class LogGroups:
    """Looks for log groups and creates them. ECS starts no container whose log group is missing.

    Args:
        open_client: Makes boto3's client of a service.
    """

    def __init__(self, open_client: OpenClient) -> None:
        self._open = open_client
        self._exists: dict[str, bool | None] = {}

    def exists(self, name: str) -> bool | None:
        """Whether the group exists; None if the groups may not be listed, which is needed for nothing else."""
        if name not in self._exists:
            try:
                self._exists[name] = name in _listed(self._open, name)
            except TaskProfilerError:
                self._exists[name] = None
        return self._exists[name]

    def creation_note(self, name: str) -> str | None:
        """A sentence if ``--register`` will create the group; None if it exists."""
        exists = self.exists(name)
        if exists:
            return None
        condition = " if it does not exist" if exists is None else ""
        return f"--register creates the log group {name}{condition}."

    def create(self, name: str) -> bool:
        """Create the group. Returns False if it exists already. Raises TaskProfilerError."""
        if self._exists.get(name):
            return False
        logs = self._open("logs")
        with aws_errors(f"The log group {name!r} was not created, so no revision was registered"):
            try:
                logs.create_log_group(logGroupName=name)
                is_new = True
            except logs.exceptions.ResourceAlreadyExistsException:
                is_new = False
        self._exists[name] = True
        return is_new

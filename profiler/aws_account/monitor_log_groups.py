"""Log groups by their names: groups that match a pattern, and groups of monitors that have their own log stream."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import glob_prefix
from profiler.core.errors import TaskProfilerError


def matching_log_groups(open_client: OpenClient, names: Iterable[str]) -> tuple[str, ...]:
    """The log groups that match the names, which may have the wildcards ``*``, ``?`` and ``[]``.

    AWS is asked only for names with a wildcard.

    Raises:
        TaskProfilerError: if the groups cannot be listed, or if a name with a wildcard matches none.
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


class LogGroups:
    """Looks for log groups and creates them. ECS starts no container whose log group is missing."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open = open_client
        self._exists: dict[str, bool | None] = {}

    def exists(self, name: str) -> bool | None:
        """Whether the group exists; None without permission to list groups, which nothing else needs."""
        if name not in self._exists:
            try:
                listed = listed_groups(self._open, name)
                self._exists[name] = any(group["logGroupName"] == name for group in listed)
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

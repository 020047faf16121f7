"""The log groups of monitors that have their own log stream. ECS starts no container whose log group is missing."""

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.errors import TaskProfilerError


class LogGroups:
    """Looks for log groups and creates them.

    Args:
        open_client: Makes boto3's client of a service.
    """

    def __init__(self, open_client: OpenClient) -> None:
        self._open = open_client
        self._exists: dict[str, bool | None] = {}

    def creation_note(self, name: str) -> str | None:
        """A sentence if ``--register`` will create the group; None if it exists."""
        if name not in self._exists:
            try:
                self._exists[name] = self._find(name)
            except TaskProfilerError:  # the permission to list groups is not needed for anything else
                self._exists[name] = None
        if self._exists[name]:
            return None
        condition = " if it does not exist" if self._exists[name] is None else ""
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

    def _find(self, name: str) -> bool:
        with aws_errors("The log groups could not be read"):
            pages = self._open("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=name)
            return any(group["logGroupName"] == name for page in pages for group in page["logGroups"])

"""Revisions of which ECS starts no task any more."""

from collections.abc import Callable

from profiler.aws_account.registered_definitions import may_exist
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_json import TaskDefinitionDocument


def why_gone(
    read: Callable[[str], TaskDefinitionDocument],
    revision: str,
    on_unread: Callable[[TaskProfilerError], object] = lambda _: None,
) -> str | None:
    """Why ECS starts no task of a revision, in words; None: it starts them, or the revision could
    not be read. ``read`` raises TaskProfilerError.
    """
    try:
        return None if read(revision).is_active else "was deregistered"
    except TaskProfilerError as error:
        if not may_exist(error):
            return "was deleted"
        on_unread(error)
        return None

"""Whether the default image of the monitor is in ECR: a task whose image is missing does not start."""

from functools import cached_property

from profiler.account_setup.image_repository import ImageRepository
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.rollout_plan import PlannedFamily
from profiler.cli.printing import warn
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.version import __version__


class PushedImage:
    """Looks into ECR for the first monitor that is to be added.

    Args:
        open_client: Makes boto3's client of a service.
        must_exist: Whether a family is refused if the image is missing; else there is a warning.
    """

    def __init__(self, open_client: OpenClient, *, must_exist: bool) -> None:
        self._open = open_client
        self._must_exist = must_exist

    def check(self, planned: PlannedFamily) -> PlannedFamily:
        """Return the plan as it is. Raises TaskProfilerError if the image is missing and must exist."""
        if planned.action == "add monitor" and self._is_missing and self._must_exist:
            raise TaskProfilerError(self._advice)
        return planned

    @cached_property
    def _is_missing(self) -> bool:
        try:
            repository = ImageRepository(self._open("ecr"), MONITOR_REPOSITORY)
            is_missing = repository.uri() is None or not repository.has_tag(__version__)
        except TaskProfilerError as error:
            warn(f"It is unknown whether the monitor's image {MONITOR_REPOSITORY}:{__version__} is in ECR. {error}")
            return False
        if is_missing and not self._must_exist:
            warn(self._advice)
        return is_missing

    @property
    def _advice(self) -> str:
        return (
            f"ECR has no image {MONITOR_REPOSITORY}:{__version__}, so the task would not start: run task-profiler "
            "setup image, or name another image with --image."
        )

"""Whether the default image of the monitor is in ECR: a task whose image is missing does not start."""

from collections.abc import Iterable

from profiler.account_setup.image_repository import has_default_image
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.rollout_plan import PlannedFamily
from profiler.cli.printing import warn
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.version import __version__


def check_default_image(planned: Iterable[PlannedFamily], open_client: OpenClient, *, must_exist: bool) -> None:
    """Look for the image in ECR if a monitor is to be added; an existing monitor keeps its image.

    Raises:
        TaskProfilerError: The image is missing and must exist. Otherwise there is a warning.
    """
    if not any(family.action == "add monitor" for family in planned):
        return
    image = f"{MONITOR_REPOSITORY}:{__version__}"
    try:
        is_there = has_default_image(open_client)
    except TaskProfilerError as error:
        warn(f"It is unknown whether the monitor's image {image} is in ECR. {error}")
        return
    if is_there:
        return
    advice = (
        f"ECR has no image {image}, without which the tasks do not start: run task-profiler setup image, or name "
        "another image with --image."
    )
    if must_exist:
        raise TaskProfilerError(advice)
    warn(advice)

"""Whether CloudWatch Logs has the line of a run where its family's definition sends it."""

from collections.abc import Mapping

from profiler.core.ecs_terms import MONITOR_NAME, AwslogsTarget, awslogs_target
from profiler.runs.past_runs.run_source import PastRun


def is_where_defined(
    run: PastRun, log_options: Mapping[str, Mapping[str, str]], monitor: str = MONITOR_NAME
) -> bool:
    """Whether the group and the stream are those that the definition names.

    ``log_options``: the awslogs options of each container by its name; a container with another
    driver is left out, and its report is the monitor's. A run of another source has no place, and
    nothing to check.
    """
    if run.place is None:
        return True
    record = run.report.record
    names = [monitor]
    if record.container.name in log_options:
        names.append(record.container.name)
    for name in names:
        options = log_options.get(name)
        if options is None:
            continue
        container_id = record.container.id if name == record.container.name else None
        target: AwslogsTarget = awslogs_target(options, name, record.task_id, container_id)
        if (run.place.group, run.place.stream) == (target.group, target.stream):
            return True
    return False

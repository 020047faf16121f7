"""``taskdef resize`` of job definitions of AWS Batch: which are selected, and their runs."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from profiler.aws_account.registered_job_definitions import JobDefinitions
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.cli.printing import warn
from profiler.cli.resize_runs import FoundRuns, NewestDefinitionReader, RecentRunsReader
from profiler.core.ecs_terms import cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.core.text import first_names
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.units import format_count
from profiler.runs.past_runs.defined_jobs import RunsOfDefinedJobs
from profiler.task_definitions.job_as_task_definition import launch_type_of_jobs

UNSEEN_SUBMITTERS = (
    "Rules, schedules and Step Functions alone can be seen: where Airflow or another program "
    "submits NAME:REVISION, its jobs keep their size."
)


def request_with_definitions(
    request: RolloutRequest,
    jobs: JobDefinitions,
    targets: Callable[[], Sequence[ScheduledTarget]],
) -> RolloutRequest:
    """The request with the selected definitions: those that are named, and those of the jobs that
    its queues still know, or that a rule or a schedule submits to them.

    Raises TaskProfilerError if the queues have none.
    """
    if not request.queues:
        return replace(request, globs=request.job_definitions)
    names: set[str] = set()
    for queue in request.queues:
        names |= jobs.in_queue(queue)
        of_queue = [
            target
            for target in targets()
            if cluster_name(target.cluster_arn) == cluster_name(queue)
        ]
        names |= {target.family for target in of_queue}
    selected = sorted((names - {PROOF_FAMILY}) & jobs.families("*"))
    if not (selected or request.job_definitions):
        raise TaskProfilerError(
            f"Of the last seven days' jobs in {first_names(request.queues)}, no job definition is "
            "active, and no rule or schedule submits one: use --job-definition NAME."
        )
    return replace(request, globs=(*request.job_definitions, *selected))


def read_job_runs(
    runs: RecentRunsReader, names: Sequence[str], definitions: NewestDefinitionReader
) -> FoundRuns:
    """The runs of the named definitions, by what Batch said of their jobs.

    Raises TaskProfilerError.
    """
    readable = [name for name in names if definitions.can_read(name)]
    jobs = RunsOfDefinedJobs(
        {name: launch_type_of_jobs(definitions.read_definition(name)) for name in readable}
    )
    found = runs.read_runs(names, definitions.places, jobs)
    if jobs.unnamed:
        verb = "does" if jobs.unnamed == 1 else "do"
        warn(
            f"{format_count(jobs.unnamed, 'run')} of jobs {verb} not say the job definition, and "
            "so not count: the forwarder asks Batch for it, so that a search cluster has it "
            "(--from https://HOST)."
        )
    return found

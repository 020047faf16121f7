"""The log groups that have the reports of families: those that the newest task definitions name
for the batch and its monitor.

A name is taken as it is, never as a pattern: what a definition names is not its reader's choice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.clusters_and_log_groups import raise_on_missing_cluster
from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.started_tasks import SERVICE, starters_of_families
from profiler.core.ecs_terms import MONITOR_NAME, cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.core.text import first_names, listed, listed_and_more
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.units import format_count
from profiler.task_definitions.containers import log_target, read_containers, roles_of

_SHOWN_GROUPS = 2
_SHOWN_PROBLEMS = 3


class ReportGroup(Struct, frozen=True, kw_only=True, order=True):
    """A log group, and its Region if the definition names one."""

    name: str
    region: str = ""


class FoundGroups(Struct, frozen=True, kw_only=True):
    """The log groups of families, each once. ``problems`` are sentences about the families without
    one; ``is_partial``: a definition could not be read.
    """

    groups: tuple[ReportGroup, ...]
    problems: tuple[str, ...] = ()
    is_partial: bool = False

    def names_by_region(self, region: str) -> Mapping[str, tuple[str, ...]]:
        """The names by the Region; ``region`` is that of groups whose definition names none."""
        names: dict[str, list[str]] = {}
        for group in self.groups:
            of_region = names.setdefault(group.region or region, [])
            if group.name not in of_region:
                of_region.append(group.name)
        return {place: tuple(of_region) for place, of_region in names.items()}

    @property
    def where_runs_are_read(self) -> str:
        """Where runs are read, such as ``the log groups /ecs/a, /ecs/b and 3 more``."""
        names = [*dict.fromkeys(group.name for group in self.groups)]
        shown = listed_and_more(names, _SHOWN_GROUPS)
        plural = "s" if len(names) > 1 else ""
        return f"Runs are read from the log group{plural} {shown} (--from chooses another source)."


def find_log_groups(
    families: Iterable[str], read_definition: Callable[[str], Mapping[str, object]]
) -> FoundGroups:
    """The log groups of families.

    ``read_definition`` reads a family's newest definition, and raises TaskProfilerError.
    """
    groups: dict[ReportGroup, None] = {}
    without: list[str] = []
    problems: list[str] = []
    for family in families:
        try:
            of_family = report_groups(read_definition(family))
        except TaskProfilerError as error:
            problems.append(str(error))
            continue
        if not of_family:
            without.append(family)
        groups |= dict.fromkeys(of_family)
    sentences = problems[:_SHOWN_PROBLEMS]
    more = len(problems) - _SHOWN_PROBLEMS
    if more > 0:
        sentences.append(f"{format_count(more, 'more definition')} could not be read.")
    if without:
        sentences.append(
            f"No runs are read of {first_names(without)}: neither the batch nor the monitor of the "
            "definition logs to CloudWatch Logs (awslogs)."
        )
    return FoundGroups(groups=tuple(groups), problems=tuple(sentences), is_partial=bool(problems))


def report_groups(definition: Mapping[str, object]) -> tuple[ReportGroup, ...]:
    """The log groups of the batch, or of all containers that could be it, and of the monitor."""
    containers = read_containers(definition)
    roles = roles_of(containers)
    names = {*roles.candidates, roles.monitor or MONITOR_NAME}
    groups: dict[ReportGroup, None] = {}
    for container in containers:
        target = log_target(container)
        if container.name in names and target.group:
            groups[ReportGroup(name=target.group, region=target.region or "")] = None
    return tuple(groups)


def families_of_clusters(
    open_client: OpenClient, clusters: Collection[str], note: Callable[[str], object]
) -> tuple[str, ...]:
    """The families of the clusters' tasks and schedules, without those that only services start.

    A part that may not be read is given to ``note``. Raises TaskProfilerError for no family.
    """
    families: set[str] = set()
    problems: list[str] = []
    ecs = open_client("ecs")
    for cluster in clusters:
        try:
            with raise_on_missing_cluster(open_client, cluster):
                seen = starters_of_families(ecs, cluster)
        except TaskProfilerError as error:
            problems.append(str(error))
            continue
        families |= {family for family, names in seen.items() if names != {SERVICE}}
    names = {cluster_name(cluster) for cluster in clusters}
    try:
        targets = ScheduleReader(open_client).read_targets()
    except TaskProfilerError as error:
        problems.append(str(error))
        targets = ()
    families |= {target.family for target in targets if cluster_name(target.cluster_arn) in names}
    families -= {PROOF_FAMILY, ""}
    if problems and not families:
        raise TaskProfilerError(problems[0])
    for problem in problems:
        note(problem)
    if not families:
        raise TaskProfilerError(
            f"No task and no schedule of {listed(clusters, 'or')} names a family: check --cluster "
            "and the Region, or name the source of the runs by --from."
        )
    return tuple(sorted(families))

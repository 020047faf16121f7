"""The runs that ``taskdef resize`` judges: of the last days, from the sources of the options, or
from the log groups that the families' definitions name.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.forwarder_stack import FORWARDER_STACK
from profiler.aws_account.revision_read_limit import BoundedReads
from profiler.cli.options import SourceOptions
from profiler.cli.printing import warn, warn_if_partial, warn_of_notes
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_log_groups import open_defined_groups, read_ended_tasks
from profiler.cli.wiring.open_past_runs import (
    open_source,
    reads_local_only,
    show_progress,
    source_names,
)
from profiler.core.completeness import Gap, UnreadGroup
from profiler.core.errors import TaskProfilerError
from profiler.core.text import first_names
from profiler.record.family_identity import FamilyKey
from profiler.runs.past_runs.defined_jobs import EVERY_RUN, AllRunsByFamily
from profiler.runs.past_runs.family_evidence import read_windows
from profiler.runs.past_runs.log_places import DefinedLogPlaces, LogOptions, log_options_of
from profiler.runs.past_runs.report_agreement import ALL_BELIEVED, BelievedLines
from profiler.runs.past_runs.run_source import (
    RunFilter,
    RunSource,
    exact_patterns_of,
)
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.task_definitions.definition_json import read_described

_WRITERS = (
    "Whoever may register a task definition in this account, or write to these log groups, could "
    "have written them."
)
_BELIEVED = f"--believe-logs: nothing confirms the lines of the log groups. {_WRITERS}"
_BY_FROM = "name the source of the runs by --from"
ELSEWHERE = f"{_BY_FROM}, or FAMILY, --cluster or --scheduled, whose log groups are read."


class FoundRuns(Struct, frozen=True, kw_only=True):
    """The runs of families, and why some may be missing: ``gaps`` of log groups."""

    windows: Mapping[FamilyKey, FamilyWindow]
    gaps: tuple[Gap, ...] = ()

    def why_runs_are_missing(self, definition: Mapping[str, object]) -> str:
        """Why the definition's runs are only a part, in words; "" if they are whole.

        Raises TaskProfilerError if its log group could not be read.
        """
        clause = ""
        for gap in self.gaps:
            if gap.group is not None:
                group = unread_group_of_definition(definition, (gap.group,))
                if group is None:
                    continue
                if not gap.reason:
                    raise TaskProfilerError(f"Its log group {group} could not be read.")
            clause = clause or _as_clause(gap.reason)
        return clause


def _as_clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


class NewestDefinitionReader:
    """The account's newest definitions, each read once and before it is planned.

    A line can name any family: those that are not ``families`` have no place.
    """

    def __init__(self, families: Sequence[str], reads: BoundedReads) -> None:
        self._families = frozenset(families)
        self._reads = reads
        self._known: dict[str, Mapping[str, object] | TaskProfilerError] = {}
        self.places = DefinedLogPlaces(self.log_options)

    def read_definition(self, family: str) -> Mapping[str, object]:
        """Raises TaskProfilerError, also when it is asked again."""
        if family not in self._known:
            try:
                document = read_described(self._reads.read_ahead, family)
                self._known[family] = document.definition
            except TaskProfilerError as error:
                self._known[family] = error
        known = self._known[family]
        if isinstance(known, TaskProfilerError):
            raise known
        return known

    def can_read(self, family: str) -> bool:
        """Whether it can be read; the plan says why not."""
        try:
            self.read_definition(family)
        except TaskProfilerError:
            return False
        return True

    def log_options(self, family: str) -> LogOptions:
        """Where the family logs; empty if that is not known."""
        if family not in self._families or not self.can_read(family):
            return {}
        return log_options_of(self.read_definition(family)) or {}


def unread_group_of_definition(
    definition: Mapping[str, object], unread_groups: Collection[UnreadGroup]
) -> str | None:
    """One of these log groups that the definition names; None if it names none of them."""
    for options in (log_options_of(definition) or {}).values():
        region = options.get("awslogs-region")
        for unread_region, name in unread_groups:
            is_in_region = None in (region, unread_region) or region == unread_region
            if name == options.get("awslogs-group") and is_in_region:
                return name
    return None


class RecentRunsReader(Struct, frozen=True, kw_only=True):
    """Reads the runs of the last days.

    ``is_for_act``: somebody acts on them, so a source that cannot be read is an error.
    ``are_for_files``: the families are those in files. Runs from log groups count if task_stopped
    of the ``stack`` has said something about their tasks, unless their reader ``believes_logs``.
    """

    options: SourceOptions
    span: WindowSpan
    is_for_act: bool
    are_for_files: bool
    stack: str = FORWARDER_STACK
    believes_logs: bool = False

    def read_runs(
        self, families: Sequence[str], places: DefinedLogPlaces, jobs: AllRunsByFamily = EVERY_RUN
    ) -> FoundRuns:
        """The runs of the named families, of all without a name, from the sources of the options;
        of job definitions, those of ``jobs``.

        Raises TaskProfilerError.
        """
        # CloudWatch is read by time: for rarer families, it would be read from its beginning.
        options = dataclasses.replace(self.options, since=f"{self.span.days}d")
        is_by_time = bool(source_names(options, "logs") or source_names(options, "insights"))
        source = open_source(options, whole_since_ns=self.span.since_ns)
        ended = self._ended_tasks() if source_names(options, "logs") else ALL_BELIEVED
        names = () if jobs.of_definitions else families  # a run's family is its task's
        runs = self._read(source, names, places, ended, jobs, reads_older=not is_by_time)
        if reads_local_only(options) and not runs.windows:
            of_names = f" of {first_names(families)}" if families else ""
            remedy = ELSEWHERE
            if self.are_for_files or jobs.of_definitions:
                remedy = f"{_BY_FROM}."
            raise TaskProfilerError(f"There is no run{of_names} in {source.place}: {remedy}")
        return runs

    def read_from_defined_groups(
        self, families: Sequence[str], definitions: NewestDefinitionReader
    ) -> FoundRuns:
        """The runs of the families from the log groups that their definitions name."""
        if not families:
            return FoundRuns(windows={})
        readable = [family for family in families if definitions.can_read(family)]
        source = open_defined_groups(
            self.options,
            readable or families,
            definitions.read_definition,
            show_progress,
            whole_since_ns=self.span.since_ns,
        )
        warn_if_partial(source)
        ended = self._ended_tasks()
        return self._read(source, families, definitions.places, ended, reads_older=False)

    def _ended_tasks(self) -> BelievedLines:
        """What ECS has said about the tasks of log groups, unless their lines are believed.

        Raises TaskProfilerError if a registration needs it.
        """
        if self.are_for_files:
            return ALL_BELIEVED
        if self.believes_logs:
            warn(_BELIEVED)
            return ALL_BELIEVED
        try:
            open_client = open_clients(self.options.region, self.options.profile)
            return read_ended_tasks(open_client, self.stack, self.span.since_ns)
        except TaskProfilerError as error:
            remedy = f"{error} --believe-logs takes the lines as they are. {_WRITERS}"
            if self.is_for_act:
                raise TaskProfilerError(
                    f"Nothing is changed by log groups alone. {remedy}"
                ) from error
            warn(f"--register would refuse this plan. {remedy}")
            return ALL_BELIEVED

    def _read(
        self,
        source: RunSource,
        families: Sequence[str],
        places: DefinedLogPlaces,
        ended: BelievedLines,
        jobs: AllRunsByFamily = EVERY_RUN,
        *,
        reads_older: bool,
    ) -> FoundRuns:
        selection = RunFilter(families=exact_patterns_of(families))
        with warn_of_notes(source):
            windows = read_windows(
                source,
                selection,
                self.span,
                reads_older=reads_older,
                places=places,
                ended=ended,
                jobs=jobs,
            )
        completeness = source.completeness
        if self.is_for_act and completeness.places:
            raise TaskProfilerError(
                f"{first_names(completeness.places)} could not be read as a whole, so nothing was "
                "changed: call it again, or leave this source out."
            )
        of_functions = [replace(gap, group=None) for gap in ended.gaps]
        gaps = [gap for gap in completeness.gaps if gap.group is not None]
        return FoundRuns(windows=windows, gaps=(*gaps, *of_functions))

"""Whether CloudWatch Logs has the line of a run where its family's definition sends it."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from profiler.core.ecs_terms import AWSLOGS, MONITOR_NAME, AwslogsTarget, awslogs_target
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.record.family_identity import family_key
from profiler.record.line_trust import MONITOR_VOUCHERS
from profiler.runs.past_runs.past_run import PastRun

# The options of awslogs by the container's name; empty for one with another driver.
LogOptions = Mapping[str, Mapping[str, str]]
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
_MAX_DEFINITIONS = 2_000
_PLACE_OPTIONS = ("awslogs-group", "awslogs-stream-prefix")


def log_options_of(definition: Mapping[str, object]) -> LogOptions | None:
    """The awslogs options of a definition's containers; empty for those with another driver.

    None: the definition is a file's that computes them, or that has no containers in it.
    """
    containers = definition.get("containerDefinitions")
    if not isinstance(containers, list) or any(map(_is_computed, containers)):
        return None
    options_of_container: dict[str, Mapping[str, str]] = {}
    for container in mappings_in_list(containers):
        configuration = mapping_or_empty(container.get("logConfiguration"))
        options = mapping_or_empty(configuration.get("options"))
        places = [options[name] for name in _PLACE_OPTIONS if name in options]
        parts = (container.get("logConfiguration"), *configuration.values(), *places)
        if any(map(_is_computed, parts)):
            return None
        container_name = text_or_none(container.get("name")) or ""
        if configuration.get("logDriver") != AWSLOGS:
            options_of_container[container_name] = {}
            continue
        if any(text_or_none(place) is None for place in places):
            return None
        options_of_container[container_name] = {
            name: value
            for name, value in options.items()
            if isinstance(value, str) and not _is_computed(value)
        }
    return options_of_container


def _is_computed(value: object) -> bool:
    """Whether it is a template's function, such as ``!Ref Group``: a text of a type of its own."""
    return isinstance(value, str) and type(value) is not str


class AnyLogPlace:
    """Any place is as good as another: there is none to check."""

    def is_in_its_place(self, run: PastRun) -> bool:  # noqa: ARG002
        """Whether the run's line is where its family's definition sends it."""
        return True


ANY_PLACE: Final = AnyLogPlace()


class DefinedLogPlaces(AnyLogPlace):
    """Where the families' newest definitions send their lines. Each family is read once.

    A run in the place that only its own, older revision names counts only with ``reads_revisions``.
    ``read_options``: of a family, or ``FAMILY:REVISION``; None if any place is as good as another.
    """

    def __init__(
        self, read_options: Callable[[str], LogOptions | None], *, reads_revisions: bool = False
    ) -> None:
        self._read_options = read_options
        self._reads_revisions = reads_revisions
        self._options: dict[str, LogOptions | None] = {}

    def is_in_its_place(self, run: PastRun) -> bool:
        """Whether the run's line is where its family's definition sends it."""
        if run.place is None:
            return True
        record = run.record
        family = family_key(record).name
        if self._is_in_place(run, family):
            return True
        if not self._reads_revisions or record.revision is None:
            return False
        return self._is_in_place(run, f"{family}:{record.revision}")

    def _is_in_place(self, run: PastRun, definition: str) -> bool:
        """A line can name any family: of names beyond a limit, none is read."""
        if definition not in self._options:
            if len(self._options) >= _MAX_DEFINITIONS:
                return False
            self._options[definition] = self._read_options(definition)
        options = self._options[definition]
        return options is None or is_where_defined(run, options)


def is_where_defined(run: PastRun, log_options: LogOptions, monitor: str = MONITOR_NAME) -> bool:
    """Whether the Region, the group and the stream are those that the definition names.

    ``log_options``: the awslogs options of each container by its name; they are empty for one with
    another driver, whose report is the monitor's: the task's, or the instance's. A container that
    is not among them is made up. A run of another source has no place, and nothing to check.
    """
    if run.place is None:
        return True
    record = run.record
    if record.container.name not in log_options:
        return False
    if run.voucher in MONITOR_VOUCHERS:
        return not log_options[record.container.name]
    for name in (monitor, record.container.name):
        options = log_options.get(name)
        if not options:
            continue
        container_id = record.container.id if name == record.container.name else None
        target: AwslogsTarget = awslogs_target(options, name, record.task_id, container_id)
        is_in_stream = (run.place.group, run.place.stream) == (target.group, target.stream)
        if is_in_stream and _is_in_region(run.place.region, target.region):
            return True
    return False


def _is_in_region(region: str | None, defined: str | None) -> bool:
    """Whether a log group is in the defined Region.

    A file's Region may be a placeholder, such as ``${REGION}``, which says nothing.
    """
    if region is None or defined is None or not _REGION.fullmatch(defined):
        return True
    return region == defined

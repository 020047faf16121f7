"""Families that the policy of the reports would let write into each other's log streams.

A line of a stream speaks for the stream's task, so such families could forge each other's runs.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from profiler.aws_account.planned_family import PlannedFamily
from profiler.core.commands_to_copy import command_line, option_words
from profiler.core.errors import TaskProfilerError
from profiler.core.text import listed_and_more
from profiler.task_definitions.containers import read_containers, requested_batch, roles_of
from profiler.task_definitions.definition_json import read_described
from profiler.task_definitions.permissions import is_covered, streams_of_container

_MAX_NAMED = 5
# The families beside the plan that are read, at about 20 a second.
_MAX_OTHERS = 500
UNKNOWN_STREAMS = "Which other families log to the same streams is unknown."


def batch_streams(definition: Mapping[str, object], revision_arn: str) -> frozenset[str]:
    """The ARNs of the log streams that speak for the tasks of a definition."""
    containers = read_containers(definition)
    names = {*roles_of(containers).candidates, requested_batch(containers)}
    streams = set[str]()
    for container in containers:
        stream = streams_of_container(container, revision_arn)
        if stream and container.name in names:
            streams.add(stream)
    return frozenset(streams)


def read_streams(
    families: Sequence[str], describe: Callable[[str], bytes], on_problem: Callable[[str], object]
) -> dict[str, frozenset[str]]:
    """The streams of families that are not planned; what cannot be read is left out, with a
    sentence.
    """
    streams: dict[str, frozenset[str]] = {}
    try:
        for family in families[:_MAX_OTHERS]:
            document = read_described(describe, family)
            streams[family] = batch_streams(document.definition, document.arn or "")
    except TaskProfilerError as error:
        on_problem(f"{error} {UNKNOWN_STREAMS}")
        return streams
    if len(families) > _MAX_OTHERS:
        on_problem(f"Only {_MAX_OTHERS} of {len(families)} were looked at. {UNKNOWN_STREAMS}")
    return streams


def with_shared_streams(
    planned: Sequence[PlannedFamily], others: Mapping[str, frozenset[str]], image: str | None
) -> list[PlannedFamily]:
    """The plans with a problem for each family whose policy covers the streams of others.

    ``others`` are the streams of the families that are not planned; ``image`` is the monitor's.
    """
    families_of: dict[str, set[str]] = {}
    streams_by_family = dict(others)
    for plan in planned:
        definition = plan.document.definition
        streams_by_family[plan.family] = batch_streams(definition, plan.revision_arn)
    for family, streams in streams_by_family.items():
        for stream in streams:
            families_of.setdefault(stream, set()).add(family)
    writable: dict[frozenset[str], set[str]] = {}
    for plan in planned:
        if plan.report_stream_arns not in writable:
            covered = [
                families
                for stream, families in families_of.items()
                if is_covered(stream, plan.report_stream_arns)
            ]
            writable[plan.report_stream_arns] = set[str]().union(*covered)
    return [
        _with_problem(plan, planned, writable[plan.report_stream_arns], image) for plan in planned
    ]


def _with_problem(
    plan: PlannedFamily, planned: Sequence[PlannedFamily], writable: set[str], image: str | None
) -> PlannedFamily:
    names = sorted({plan.family, *writable})
    if not plan.report_stream_arns or len(names) == 1:
        return plan
    members = [
        other.family for other in planned if other.report_stream_arns and other.family in names
    ]
    words: list[str] = []
    for member in members:
        words += ("--family", member)
    words += option_words({"--image": image})
    command = command_line(
        "taskdef", "add-monitor", *words, "--report-stream", "monitor", "--register"
    )
    if len(members) > _MAX_NAMED:
        command = "--report-stream monitor"
    shown = listed_and_more(names, _MAX_NAMED)
    sentence = (
        f"The policy lets tasks write into the log streams of {shown}, and so forge each other's "
        f"runs. The monitor's own streams need no policy: {command}."
    )
    return replace(plan, problems=(*plan.problems, sentence))

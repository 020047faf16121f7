"""Runs from the lines that a monitor or a profiler wrote: reports and checkpoints.

``read_run_line`` reads the head of a line, ``group_lines`` puts the lines of each run together, and
``matching_runs`` makes a run of each group that matches: only its lines are decoded whole.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import LogTarget
from profiler.core.json_fields import decoded_or_none
from profiler.core.text import first_names
from profiler.core.timestamps import parse_ns
from profiler.record.impossible_values import decode_leniently, is_too_long
from profiler.record.line_trust import Voucher
from profiler.record.record_model import CHECKPOINT, Report, decode
from profiler.record.report_head import ReportHead
from profiler.record.units import format_count
from profiler.runs.past_runs.lost_runs import LOST, is_silent
from profiler.runs.past_runs.past_run import PastRun, RunKey, report_start_ns, run_key
from profiler.runs.past_runs.run_source import RunFilter

_MAX_SCHEMA_LENGTH = 20
_OF_NEWER = (
    "which a newer Task Profiler wrote: update this one, to which their values may mean something "
    "else"
)
_OF_NOBODY = "which no Task Profiler writes: their values may mean something else"
# Some programs write it at the beginning of a file in UTF-8.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class RunLine(Struct, frozen=True):
    """A record line and its number in a file, or its place in CloudWatch Logs.

    ``is_confirmed``, ``counts``, ``voucher`` and ``place``: see :class:`PastRun`.
    """

    line: bytes
    head: ReportHead
    number: int = 0
    is_confirmed: bool = True
    counts: bool = True
    voucher: Voucher | None = None
    place: LogTarget | None = None


def line_text(line: bytes) -> bytes:
    """A line without the spaces around it, and without a byte order mark."""
    return line.strip().removeprefix(_BYTE_ORDER_MARK)


def read_run_line(line: bytes, number: int = 0) -> RunLine | None:
    """A line with its head decoded; None for another line, and for one that is longer than any
    that is written.
    """
    if is_too_long(line):
        return None
    head = decoded_or_none(partial(decode_leniently, ReportHead), line)
    return None if head is None else RunLine(line, head, number)


def other_schema_versions(head: ReportHead) -> tuple[str, ...]:
    """The version of a line's schema, if it is another one than here."""
    return (head.schema_version,) if head.is_of_other_schema else ()


def schema_remarks(place: str, schemas: Counter[str]) -> Iterator[str]:
    """What to know of the lines of other schemas."""
    newer = {name for name in schemas if name.partition(".")[0].isdecimal()}
    unknown = schemas.keys() - newer
    for names, what in ((newer, _OF_NEWER), (unknown, _OF_NOBODY)):
        if names:
            lines = format_count(sum(schemas[name] for name in names), "line")
            shown = first_names([name[:_MAX_SCHEMA_LENGTH] for name in sorted(names)])
            yield f"{place}: {lines} of schema {shown}, {what}"


def matching_runs(
    groups: Iterable[Sequence[RunLine]],
    selection: RunFilter,
    add_invalid: Callable[[int], None],
    now_ns: int,
) -> Iterator[PastRun]:
    """The matching runs of :func:`group_lines`; only they are decoded.

    ``add_invalid`` gets invalid lines' numbers.
    """
    for group in groups:
        head = group[0].head
        may_be_lost = head.type == CHECKPOINT
        if not may_be_lost and not selection.matches(head):
            continue
        run = _decode_run(group, add_invalid)
        if run is None:
            continue
        report = run.report
        if report.type == CHECKPOINT and is_silent(report, now_ns):
            lost = replace(report.record, status=LOST)
            run = replace(run, report=replace(report, record=lost))
        if selection.matches(run.report):
            yield run


def _decode_run(group: Sequence[RunLine], add_invalid: Callable[[int], None]) -> PastRun | None:
    """The run of the first line that can be read, with all checkpoints."""
    readable: list[tuple[RunLine, Report]] = []
    for line in group:
        if readable and line.head.type != CHECKPOINT:
            continue  # an older report
        report = decoded_or_none(decode, line.line)
        if report is None:
            add_invalid(line.number)
        else:
            readable.append((line, report))
    if not readable:
        return None
    line, report = readable[0]
    return PastRun(
        report=report,
        line=line.line,
        checkpoints=tuple(one for _, one in readable if one.type == CHECKPOINT),
        is_confirmed=line.is_confirmed,
        counts=line.counts,
        voucher=line.voucher,
        place=line.place,
    )


def group_lines(lines: Iterable[RunLine]) -> list[list[RunLine]]:
    """Group record lines by run, newest run first.

    In a group, the first line counts: the last report or checkpoint.
    """
    groups: dict[RunKey, list[RunLine]] = {}
    for line in lines:
        groups.setdefault(run_key(line.head), []).append(line)
    for group in groups.values():
        if len(group) > 1:
            group.sort(key=_line_precedence)
            group.reverse()
    return sorted(groups.values(), key=lambda group: report_start_ns(group[0].head), reverse=True)


def _line_precedence(line: RunLine) -> tuple[bool, int]:
    """The order of a run's lines: the highest one counts."""
    return line.head.type != CHECKPOINT, parse_ns(line.head.time) or 0

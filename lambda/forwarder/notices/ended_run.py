"""An ended run as data for other programs: the detail of the EventBridge event, and the ``task.ended`` line."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forwarder.notices import value_formats
from forwarder.notices.channel import Announcement, ChannelKind
from forwarder.notices.ended_task import EndedTask, UnusualMeasure
from forwarder.notices.links import links_of
from profiler.core.text import on_one_line
from profiler.core.timestamps import format_datetime
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import Cost, Metrics, Recommendation, describe_type
from profiler.record.run_outcome import PREDICATES, EndStatus, StopCategory

LINE_TYPE = "task.ended"
MAX_DETAIL_BYTES = 32 * 1024
MAX_NAME_LENGTH = 255
MAX_ARN_LENGTH = 1024
MAX_REASON_LENGTH = 1024
MAX_SENTENCE_LENGTH = 400
MAX_WORD_LENGTH = 64
_MAX_URL_LENGTH = 2048
_MAX_ADVICE = 5
_MAX_SIZES = 16
_MAX_TARGETS = 3
# The other ones, control characters, become spaces in every text.
_ESCAPED_IN_JSON = str.maketrans({'"': "'", "\\": "/"})


class Links(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Addresses of the run: its log stream and its task in the AWS console, and its dashboard in Kibana."""

    log_stream: str | None = None
    ecs_task: str | None = None
    kibana: str | None = None


class EndedRun(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One ended run. What is unknown is left out.

    ``text`` is one sentence about the run, or two: the second says what a failed or slow run waited for most of the
    time. It contains no quotation mark, backslash or control character: the input transformers of EventBridge insert
    texts as they are, so that these would break the JSON of a template.
    ``container`` is the name of the batch container. ``stopCategory`` is the cause of the end, ``stoppedReason`` the
    text from ECS. ``metrics``, ``cost`` and ``recommendation`` are those of the run's report; without a report,
    ``metrics`` has the numbers of the last checkpoint, or only the duration, and ``cost`` is left out.
    ``timeBreakdown`` is that of the report or the checkpoint, with at most three targets. ``unusual`` are the metrics
    in which a success lies far outside its family, with the median of the family's recent successes.
    """

    text: str
    task_id: str
    task_arn: str | None = None
    cluster: str | None = None
    family: str
    revision: str | None = None
    container: str | None = None
    status: EndStatus
    stop_category: StopCategory
    stopped_reason: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    finished_at: str | None = None
    metrics: Metrics | None = None
    time_breakdown: TimeBreakdown | None = None
    cost: Cost | None = None
    recommendation: Recommendation | None = None
    unusual: tuple[UnusualMeasure, ...] = ()
    links: Links | None = None


class EndedLine(EndedRun, frozen=True, kw_only=True, tag_field="type", tag=LINE_TYPE):
    """The same run as a line of the function's log."""


def ended_run(notice: EndedTask, *, kibana_url: str | None) -> EndedRun:
    """Return the run of a notice, with all texts truncated; its JSON is smaller than 32 KB."""
    started_at = notice.task.started_at
    run = EndedRun(
        text=embeddable(_sentence(notice), MAX_REASON_LENGTH) or "",
        task_id=embeddable(notice.task.id, MAX_ARN_LENGTH) or "",
        task_arn=embeddable(notice.task.arn, MAX_ARN_LENGTH),
        cluster=embeddable(notice.task.cluster, MAX_NAME_LENGTH),
        family=embeddable(notice.family, MAX_NAME_LENGTH) or "",
        revision=embeddable(notice.task.revision, MAX_WORD_LENGTH),
        container=embeddable(notice.container, MAX_NAME_LENGTH),
        status=notice.outcome.status,
        stop_category=notice.outcome.category,
        stopped_reason=cut(notice.reason, MAX_REASON_LENGTH),
        exit_code=notice.outcome.exit_code,
        started_at=None if started_at is None else format_datetime(started_at),
        finished_at=embeddable(notice.finished_at, MAX_WORD_LENGTH),
        metrics=_metrics(notice),
        time_breakdown=_time_breakdown(notice),
        cost=_cost(notice),
        recommendation=_recommendation(notice),
        unusual=notice.unusual,
        links=known_links(links_of(notice, kibana_url)),
    )
    # Only numbers of thousands of digits can make it so large.
    is_small = len(msgspec.json.encode(run)) < MAX_DETAIL_BYTES
    return run if is_small else replace(run, metrics=None, time_breakdown=None, cost=None, recommendation=None)


def _sentence(notice: EndedTask) -> str:
    """Return a sentence such as "nightly:5 failed with exit code 1: out of disk.", and one about its longest wait."""
    revision = notice.task.revision
    name = notice.family if revision is None else f"{notice.family}:{revision}"
    code = value_formats.exit_code(notice.outcome.exit_code or None)
    exit_code = "" if code is None else f" with exit code {code}"
    reason = f": {notice.reason.strip().rstrip('.')}" if notice.reason else ""
    unusual, wait = value_formats.unusual(notice), value_formats.longest_wait(notice)
    predicate = PREDICATES[notice.outcome.status] if unusual is None else f"ended with success, but {unusual}"
    return f"{name} {predicate}{exit_code}{reason}.{f' {wait}' if wait else ''}"


def _metrics(notice: EndedTask) -> Metrics | None:
    duration_ms = notice.duration_ms
    if notice.record is None:
        return None if duration_ms is None else Metrics(duration_ms=duration_ms)
    metrics = notice.record.metrics
    return replace(
        bounded_metrics(metrics),
        duration_ms=duration_ms,
        billed_duration_ms=metrics.billed_duration_ms if notice.is_complete else None,
    )


def bounded_metrics(metrics: Metrics) -> Metrics:
    """Return the metrics with all texts truncated."""
    slowdown = metrics.slowdown_at_vcpu
    sizes = (
        None
        if slowdown is None
        else {size: bounds for size, bounds in list(slowdown.items())[:_MAX_SIZES] if len(size) <= MAX_WORD_LENGTH}
    )
    return replace(
        metrics,
        memory_peak_source=cut(metrics.memory_peak_source, MAX_WORD_LENGTH),
        max_memory_used_at=cut(metrics.max_memory_used_at, MAX_WORD_LENGTH),
        slowdown_at_vcpu=sizes,
    )


def _time_breakdown(notice: EndedTask) -> TimeBreakdown | None:
    breakdown = None if notice.record is None else notice.record.time_breakdown
    if breakdown is None:
        return None
    targets = (
        replace(
            target,
            kind=embeddable(target.kind, MAX_WORD_LENGTH) or "",
            target=embeddable(target.target, MAX_NAME_LENGTH) or "",
        )
        for target in breakdown.waiting_for[:_MAX_TARGETS]
    )
    return replace(breakdown, waiting_for=tuple(targets))


def _cost(notice: EndedTask) -> Cost | None:
    cost = None if notice.record is None or not notice.is_complete else notice.record.cost
    return None if cost is None else replace(cost, price_basis=cut(cost.price_basis, MAX_SENTENCE_LENGTH))


def _recommendation(notice: EndedTask) -> Recommendation | None:
    advice = None if notice.record is None else notice.record.recommendation
    if advice is None:
        return None
    return replace(
        advice,
        reasons=tuple(embeddable(reason, MAX_SENTENCE_LENGTH) or "" for reason in advice.reasons[:_MAX_ADVICE]),
    )


def known_links(addresses: Mapping[str, str | None]) -> Links | None:
    """Return the addresses without those that are too long; None if nothing is left."""
    links = Links(
        **{name: url if url is not None and len(url) <= _MAX_URL_LENGTH else None for name, url in addresses.items()}
    )
    return None if links == Links() else links


def cut(text: str | None, max_length: int) -> str | None:
    """Return the text on one line, truncated; None if nothing is left."""
    return on_one_line((text or "")[:max_length]).strip() or None


def embeddable(text: str | None, max_length: int) -> str | None:
    """Return the text on one line, truncated, and without the characters that need an escape in JSON."""
    return cut((text or "").translate(_ESCAPED_IN_JSON), max_length)


class LogLineChannel:
    """Prints each ended run as a JSON line: without a search cluster, the function's log is the list of all runs.

    Args:
        write: prints a line.
        kibana_url: the address for the links; None: no link to Kibana.
    """

    name = "log"
    is_selective = False

    def __init__(self, write: Callable[[str], None], *, kibana_url: str | None = None) -> None:
        self._write = write
        self._kibana_url = kibana_url

    def accepts(self, kind: ChannelKind) -> bool:  # noqa: ARG002  part of the interface
        """See ``NoticeChannel``: every run."""
        return True

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:  # noqa: ARG002  part of the interface
        """Print the line of an ended task. A notice is a line of a log already."""
        if not isinstance(announcement, EndedTask):
            return
        run = ended_run(announcement, kibana_url=self._kibana_url)
        line = EndedLine(**{name: getattr(run, name) for name in run.__struct_fields__})
        self._write(msgspec.json.encode(line).decode())


def json_schema() -> dict[str, Any]:
    """Generate the JSON Schema (2020-12) of the event's detail."""
    return describe_type(EndedRun, "Detail of the event Task Run Ended")

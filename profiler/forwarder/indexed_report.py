"""Finds the report of a stopped task in the search cluster."""

from profiler.core.ecs_terms import MONITOR_NAME
from profiler.core.json_fields import mapping_or_empty, text_or_none
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import InvocationTime
from profiler.forwarder.line_kinds import decode_report_line
from profiler.forwarder.report_finder import WAIT_RESERVED_SECONDS, ReportLine
from profiler.forwarder.report_verification import claim_of_document
from profiler.forwarder.run_documents import index_and_document_id
from profiler.forwarder.run_event import run_event_of_task
from profiler.forwarder.search_cluster.bulk_client import SearchCluster
from profiler.record.ecs_event_outcome import end_of_event
from profiler.record.record_model import Report
from profiler.record.stopped_task import EventContainer, StoppedTask

_MAX_REQUEST_SECONDS = 5.0


def find_indexed_report(
    cluster: SearchCluster,
    time: InvocationTime,
    settings: ForwarderSettings,
    task: StoppedTask,
    batch: EventContainer,
) -> ReportLine | None:
    """Return the run's final report, None if it is not indexed (yet), or if the task's event does
    not vouch for its log stream. Raises SearchClusterError.
    """
    event = run_event_of_task(
        task, end_of_event(task, batch), batch, task.container_or_name_only(MONITOR_NAME)
    )
    place = index_and_document_id(event.alone, settings.indices)
    if place is None:
        return None
    left_seconds = time.remaining_seconds() - WAIT_RESERVED_SECONDS
    source = (
        cluster.get_document(
            place.index, place.id, max(1.0, min(left_seconds, _MAX_REQUEST_SECONDS))
        )
        or {}
    )
    claim = claim_of_document(source)
    report_account = text_or_none(mapping_or_empty(source.get("task")).get("report_account"))
    verdict = event.verdict_on_report(claim, report_account)
    if verdict == "refuted" or not (claim.is_own or verdict == "confirmed"):
        return None
    line = str(source.get("record"))
    report = decode_report_line(line)
    if not isinstance(report, Report):
        return None
    report_line = ReportLine(report, line, is_indexed=True, claim=claim)
    return report_line if report_line.is_final else None

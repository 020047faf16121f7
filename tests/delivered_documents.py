"""The documents that the report and the event of one run make."""

from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_documents import event_documents, report_document
from profiler.record.ecs_event_outcome import end_of_event
from tests.ended_runs import run_of
from tests.notices import report_line
from tests.stopped_tasks import report
from tests.task_events import task

SETTINGS = ForwarderSettings()


def of_report() -> Document:
    text = report()
    made = report_document(report_line(text).report, text, SETTINGS)
    assert isinstance(made, Document)
    return made


def of_event() -> Document:
    stopped = task()
    end = end_of_event(stopped, stopped.container_or_name_only("batch"))
    (made,) = event_documents(run_of(task=stopped, end=end, container="batch"), SETTINGS)
    return made

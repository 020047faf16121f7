"""The export of an ended run: its record, and what happens when a backend does not accept it."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from profiler.core.timestamps import parse_ns
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.function_settings import FetchSecret, fetch_secret
from profiler.forwarder.invocation import DeliveryError, InProgressError
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.run_export import EndedRunExporter, exported_run
from profiler.forwarder.search_cluster.document_delivery import FailedItem
from profiler.otlp.otlp_export import HttpAnswer, OtlpExporter
from profiler.otlp.otlp_settings import Targets, read_targets
from profiler.otlp.run_signals import signals_of
from profiler.record.record_model import UNKNOWN_COST, decode
from profiler.record.stop_causes import EventEnd
from profiler.sinks import LogTarget
from tests.ended_runs import run_of
from tests.fakes import FakeClock
from tests.notices import KeyTable
from tests.stopped_tasks import report
from tests.task_events import ARN, task

NOW_NS = parse_ns("2026-03-01T10:13:00Z") or 0
FAILED = EventEnd(cause="failure", exit_code=1, reason="out of disk")


def ended(line: str | None = None, *, end: EventEnd = FAILED, **detail: Any) -> EndedRun:
    return run_of(
        task=task(pullStoppedAt="2026-03-01T10:11:25Z", **detail),
        end=end,
        container="batch",
        report_line=None if line is None else ReportLine(decode(line), line),
        log=LogTarget(group="/ecs/jobs", stream="ecs/batch/4dd5"),
    )


class Backend:
    """Answers every request alike, and keeps the once-only keys, the failures and the warnings."""

    def __init__(self, *, key: str = "", **statuses: int) -> None:
        self.statuses = statuses  # by signal
        self.key = key  # which every request needs
        self.urls: list[str] = []
        self.failures: list[FailedItem] = []
        self.warnings: list[str] = []
        self.table = KeyTable()
        self.table_error: Exception | None = None
        self.keeps = True
        self.warn_once = cache(self.warnings.append)
        self.clock = FakeClock()

    def transport(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> HttpAnswer:
        self.urls.append(url)
        status = (
            self.statuses.get(url.rpartition("/")[2], 200)
            if headers.get("x-key", "") == self.key
            else 401
        )
        return HttpAnswer(status=status, headers={}, body=b"")

    def once(self, key: str, work: Callable[[], object]) -> None:
        if self.table_error is not None:
            raise self.table_error
        self.table.once(key, work)

    def targets(self, fetch: FetchSecret) -> Targets:
        key = "old" if fetch is fetch_secret else "new"
        return read_targets(
            {"OTLP_ENDPOINT": "http://backend", "OTLP_HEADERS": f"x-key={key}" if self.key else ""}
        )

    def run_export(self) -> EndedRunExporter:
        return EndedRunExporter(
            self.targets,
            OtlpExporter(self.transport, self.clock, jitter=lambda: 0.0),
            keep=self.failures.extend if self.keeps else None,
            warn=self.warnings.append,
            warn_once=self.warn_once,
            now_ns=lambda: NOW_NS,
        )

    def export(self, max_seconds: float = 5.0) -> None:
        self.run_export().export(ended(report()), self.once, lambda: max_seconds)


def test_a_run_is_exported_once() -> None:
    backend = Backend()
    backend.export()
    backend.export()
    assert backend.urls == [
        f"http://backend/v1/{signal}" for signal in ("traces", "logs", "metrics")
    ]
    assert set(backend.table.done) == {f"{ARN}#otlp"}
    assert backend.failures == []
    assert backend.warnings == []


def test_a_key_that_was_changed_is_read_again() -> None:
    backend = Backend(key="new")
    backend.export()
    assert len(backend.urls) == 6
    assert backend.failures == []
    assert backend.warnings == []


@pytest.mark.parametrize("status", [403, 404])
def test_a_signal_that_the_backend_does_not_take_is_one_warning(status: int) -> None:
    backend = Backend(metrics=status)
    for number in range(3):
        run = ended(report(), taskArn=f"{ARN}{number}")
        backend.run_export().export(run, backend.once, lambda: 5.0)
    assert backend.failures == []
    assert len(backend.table.done) == 3
    said = f"The metrics were not exported: the server answered {status} (OTLP_ENDPOINT)."
    assert backend.warnings == [f"All runs are exported without a part. {said}"]


def test_without_a_queue_the_line_names_the_task_and_another_invocation_tries_again() -> None:
    backend = Backend(traces=401, logs=401, metrics=401)
    backend.keeps = False
    backend.export()
    (warning,) = backend.warnings
    assert task().id in warning
    assert "the server answered 401" in warning
    assert backend.table.done == {}


@pytest.mark.parametrize("error", [DeliveryError("The table cannot be used."), KeyError("x")])
def test_the_record_is_kept_when_the_table_fails(error: Exception) -> None:
    """Nothing else may need the table, and then Lambda does not retry the event.

    Another invocation keeps its own.
    """
    backend = Backend()
    backend.table_error = InProgressError("Another invocation is at it.")
    backend.export()
    assert backend.failures == []
    assert backend.warnings == []
    backend.table_error = error
    backend.export()
    (failure,), (warning,) = backend.failures, backend.warnings
    assert failure.reason in ("The table cannot be used.", "The export failed (KeyError).")
    assert task().id in warning
    assert backend.urls == []


# The record


def test_a_report_is_completed_by_the_event() -> None:
    run = exported_run(ended(report(region=None, exitCode=7)), NOW_NS)
    record = run.record
    assert record.status == "failure"
    assert record.exit_code == 1
    assert record.family == "nightly"
    assert record.revision == "5"
    assert record.region == "us-west-2"
    assert record.cluster == "jobs"
    assert record.launch_type == "FARGATE"
    assert record.container.image == "etl:7"
    assert record.log_group == "/ecs/jobs"
    assert record.metrics.duration_ms == 60000
    assert record.metrics.max_memory_used_mb == 500
    assert run.is_complete
    body = signals_of(run)["logs"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["body"]
    assert body == {"stringValue": report(region=None, exitCode=7)}


def test_without_a_report_the_event_is_the_record() -> None:
    run = exported_run(ended(), NOW_NS)
    record = run.record
    assert record.task_id == task().id
    assert record.container.name == "batch"
    assert record.status == "failure"
    assert record.exit_code == 1
    assert record.started_at == "2026-03-01T10:11:29.100Z"
    assert record.finished_at == "2026-03-01T10:12:32.316Z"
    assert record.metrics.duration_ms == 63216
    assert not run.is_complete
    root, pull, init = signals_of(run)["traces"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert int(root["startTimeUnixNano"]) == parse_ns("2026-03-01T10:11:19.058Z")
    assert int(root["endTimeUnixNano"]) == parse_ns("2026-03-01T10:12:32.316Z")
    assert root["status"] == {"code": 2, "message": "Exit code 1: out of disk"}
    assert pull["name"] == "pull"
    assert int(pull["endTimeUnixNano"]) == parse_ns("2026-03-01T10:11:25Z")
    assert init["name"] == "init"
    assert int(init["endTimeUnixNano"]) == parse_ns("2026-03-01T10:11:29.100Z")


def test_a_checkpoint_has_neither_cost_nor_billed_duration() -> None:
    line = report(
        "task.checkpoint",
        cost={"usd": 1.0},
        metrics={"billedDurationMs": 60000, "maxMemoryUsedMB": 7},
    )
    record = exported_run(ended(line), NOW_NS).record
    assert record.cost == UNKNOWN_COST
    assert record.metrics.billed_duration_ms is None
    assert record.metrics.max_memory_used_mb == 7
    assert record.metrics.duration_ms == 63216

"""Exports each ended run to OpenTelemetry backends, once and after all other outputs, which it
never fails.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from profiler.core.optional_math import known
from profiler.core.timestamps import nanoseconds_of
from profiler.forwarder.ended_run import EndedTask
from profiler.forwarder.function_settings import FetchSecret, fetch_secret
from profiler.forwarder.invocation import DeliveryError, ForwarderError, InProgressError
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.search_cluster.document_delivery import FailedItem, KeepFailures
from profiler.otlp.otlp_export import OtlpExporter, export_in_time
from profiler.otlp.otlp_settings import Targets
from profiler.otlp.run_signals import ExportedRun, signals_of


class EndedRunExporter(Struct, frozen=True):
    """Exports ended runs.

    What was not accepted is in the log and, by ``keep``, in the failure queue.
    """

    targets: Callable[[FetchSecret], Targets]
    exporter: OtlpExporter
    keep: KeepFailures | None
    warn: Callable[[str], None]
    # Of a signal that the backend does not take at all: it would fill the queue.
    warn_once: Callable[[str], None]
    now_ns: Callable[[], int]

    def export(
        self, ended: EndedTask, once: Idempotently, left_seconds: Callable[[], float]
    ) -> None:
        """Export the run in at most the time that is left.

        It never raises: the other outputs are done.
        """
        try:
            self._export_once(ended, once, left_seconds)
        except Exception as error:  # noqa: BLE001  see above
            self.warn(f"The run of task {ended.task.id} was not exported. {_error_sentence(error)}")

    def _export_once(
        self, ended: EndedTask, once: Idempotently, left_seconds: Callable[[], float]
    ) -> None:
        run = exported_run(ended, self.now_ns())
        is_begun = False

        def work() -> None:
            nonlocal is_begun
            is_begun = True
            reason = self._try_to_export(run, left_seconds())
            # Perhaps the secret was changed.
            if reason and self.exporter.is_unauthorized:
                reason = self._try_to_export(
                    run, left_seconds(), partial(fetch_secret, is_renewed=True)
                )
            if reason and self.exporter.lacks_signals:
                self.warn_once(f"All runs are exported without a part. {reason}")
            elif reason:
                self._store_failed_export(run, reason)

        try:
            once(f"{ended.task.arn}#otlp", work)  # never change this key
        except InProgressError:
            return
        except Exception as error:
            if is_begun:
                raise
            # Only the export may need the table: Lambda may not retry the event.
            self._store_failed_export(run, _error_sentence(error))

    def _try_to_export(
        self, run: ExportedRun, max_seconds: float, fetch: FetchSecret = fetch_secret
    ) -> str | None:
        """Export the run; returns why it was not accepted."""
        if max_seconds < 0.5:  # noqa: PLR2004  a connection alone needs as long
            return "The invocation had no time left."
        return export_in_time(
            lambda: (self.targets(fetch), signals_of(run)), self.exporter, max_seconds
        )

    def _store_failed_export(self, run: ExportedRun, reason: str) -> None:
        if self.keep is None:
            raise DeliveryError(reason)  # another invocation for this event tries again
        try:
            self.keep([FailedItem(msgspec.to_builtins(run.record), reason)])
        except ForwarderError as error:
            raise DeliveryError(f"{reason} {error}") from error
        task = f"task {run.record.task_id}"
        self.warn(
            f"The run of {task} was not exported: the failure queue keeps its record. {reason}"
        )


def _error_sentence(error: Exception) -> str:
    if isinstance(error, ForwarderError):
        return str(error)
    return f"The export failed ({type(error).__name__})."


def exported_run(ended: EndedTask, now_ns: int) -> ExportedRun:
    """Return the run of a task: its report or checkpoint with the event's data on the task and
    its end.
    """
    task = ended.task
    return ExportedRun(
        record=ended.run.record_completed_by_event,
        line=ended.report_line.text if ended.report_line and ended.has_final_report else None,
        pull_started_ns=known(nanoseconds_of, task.pull_started_at),
        pull_stopped_ns=known(nanoseconds_of, task.pull_stopped_at),
        reason=ended.reason,
        judged=ended.outcome,
        is_complete=ended.has_final_report,
        context=ended.labels,
        observed_ns=now_ns,
    )

"""Delivers the report to the batch's log stream or, if that fails, to the monitor's own output
with the cause.
"""

from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from profiler.core.background_call import BackgroundCall
from profiler.core.deadline_writer import Output
from profiler.core.log import Log
from profiler.monitor.report_destination import ReportDestination
from profiler.record.bounded_json_line import shortened_line
from profiler.sinks import DeliveryFailure, LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink, timed_out_failure

_ARRIVED = "arrived"
UploadResult = DeliveryFailure | str


def _wait_for_nothing() -> None:
    """Nobody waits for the delivery."""


class _PendingUpload(Struct, frozen=True):
    line: bytes
    seconds: float
    call: BackgroundCall[UploadResult]
    on_done: Callable[[], object]


class ReportDelivery(Struct, eq=False):
    """Delivers the lines of the monitor.

    Uploads run in threads: the sampling goes on, as other batches may still run.

    ECS forwards the monitor's standard output to the monitor's own log stream. ``_start_call``
    starts a call whose result counts for some seconds.
    """

    _streams: CloudWatchLogsSink
    _own_output: Output
    _log: Log
    _start_call: Callable[[float, Callable[[], UploadResult]], BackgroundCall[UploadResult]]
    _can_print: bool = True
    _uploads: list[_PendingUpload] = field(default_factory=list)
    _printed_last: list[bytes] = field(default_factory=list)

    def start_delivery(
        self,
        line: bytes,
        target: ReportDestination,
        seconds: float,
        stacks: bytes | None = None,
        *,
        on_done: Callable[[], object] = _wait_for_nothing,
        may_be_there: str | None = None,
    ) -> None:
        """Start to upload the report to its log stream within ``seconds``; print the report if
        that is impossible.

        Nothing is uploaded if the log stream holds a report of the container ``may_be_there``. The
        line of the call ``stacks`` comes before it in its log stream, and is not printed elsewhere.
        Where both are printed, it comes after all reports: it would fill the pipe of a log driver
        that hangs.
        """
        if isinstance(target, LogTarget) and seconds > 0:
            upload = partial(self._upload, line, target, seconds, stacks, may_be_there=may_be_there)
            self._uploads.append(
                _PendingUpload(line, seconds, self._start_call(seconds, upload), on_done)
            )
            return
        if isinstance(target, LogTarget):
            reason = (
                "No time was left in the stop budget (TASK_PROFILER_STOP_SECONDS) for CloudWatch "
                "Logs."
            )
            target = DeliveryFailure(reason)
        if isinstance(target, DeliveryFailure):
            self._print_instead(line, target)
        else:
            self._print_report(line)
            if stacks is not None:
                self._printed_last.append(stacks)
        on_done()

    def print_failed(self) -> None:
        """Print the lines whose upload has failed by now, without waiting."""
        for upload in tuple(self._uploads):
            if upload.call.is_over:
                self._conclude(upload)
                self._uploads.remove(upload)

    def finish_uploads(self) -> None:
        """Wait for all uploads, and print the lines of the failed ones; then the lines that may
        be lost.
        """
        while self._uploads:
            self._conclude(self._uploads.pop(0))
        while self._printed_last:
            self.write_line(self._printed_last.pop(0))

    def _conclude(self, upload: _PendingUpload) -> None:
        """Wait for the upload's result; a report that was not accepted is printed."""
        result = upload.call.result()
        if result is None:
            result = timed_out_failure(upload.seconds, self._streams.last_cause)
        if isinstance(result, DeliveryFailure):
            self._print_instead(upload.line, result)
        upload.on_done()

    def _print_instead(self, line: bytes, failure: DeliveryFailure) -> None:
        self._log.error(f"The report goes to the monitor's own output: {failure.reason}")
        self._print_report(line)

    def _print_report(self, line: bytes) -> None:
        reason = self._own_output.keep(shortened_line(line) + b"\n")
        if reason is not None:
            self._log.error(f"The report is not printed: Standard output {reason}.")

    def write_line(self, line: bytes, *, is_kept: bool = False) -> None:
        """Write a line at once.

        While nothing reads the output, drop it or, if it is kept, write it later.
        """
        write = self._own_output.keep if is_kept else self._own_output.write
        reason = write(line + b"\n")
        if reason is not None and self._can_print:
            self._log.error(f"Lines of the monitor are lost: Standard output {reason}.")
        elif reason is None and not self._can_print:
            self._log.info("Standard output takes lines again.")
        self._can_print = reason is None

    def _upload(
        self,
        line: bytes,
        target: LogTarget,
        seconds: float,
        stacks: bytes | None,
        *,
        may_be_there: str | None,
    ) -> UploadResult:
        """Upload the line and, before it, ``stacks``, within ``seconds``.

        ``may_be_there``: the batch whose report an earlier monitor may have uploaded; then nothing
        is sent if the stream has it.
        """
        try:
            if may_be_there is not None:
                seconds /= 2
                if self._streams.holds_report(target, may_be_there, seconds):
                    return _ARRIVED
            return self._streams.put(line, target, seconds, before=stacks) or _ARRIVED
        except Exception as error:  # noqa: BLE001  the line is printed after any error of the SDK
            return DeliveryFailure(
                f"The upload to CloudWatch Logs failed ({type(error).__name__}: {error})."
            )

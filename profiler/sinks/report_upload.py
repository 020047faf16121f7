"""Puts the report into the batch's log stream. botocore takes 22 MiB, so it is imported with the
first line.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from profiler.core.aws_clients import AwsClient, pages_backwards
from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.sinks import DeliveryFailure, LogTarget, TransientFailure

# The last attempt begins about this long before the time is over.
_LAST_ATTEMPT_SECONDS = 2.0
# The client gives an attempt up after about this long.
_MIN_SECONDS_FOR_TWO = 20.0
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 4.0
_PROBE_MESSAGE = b"task-profiler doctor checks whether it may write here"
_PROBE_AGE_NS = 30 * 24 * 3600 * NS_PER_SECOND
_MAX_PAGES = 20
_REPORT_TYPE = '"type":"task.report"'
_REJECTIONS = {
    "tooNewLogEventStartIndex": "it is more than 2 hours ahead of CloudWatch's clock",
    "tooOldLogEventEndIndex": "it is more than 14 days behind CloudWatch's clock",
    "expiredLogEventEndIndex": "it is older than the log group's retention",
}


Connect = Callable[[str | None, Callable[[str], None]], AwsClient]


class CloudWatchLogsSink:
    """Puts lines into log streams.

    ``last_cause`` is why the last attempt failed, as part of a sentence.

    ``connect_to`` creates the client of a region, with fresh credentials and a function that it
    calls with such a cause.
    """

    def __init__(self, connect_to: Connect, clock: Clock) -> None:
        self._connect = connect_to
        self._clock = clock
        self.last_cause = "nothing was answered"

    def put(
        self, line: bytes, target: LogTarget, seconds: float, *, before: bytes | None = None
    ) -> DeliveryFailure | None:
        """Put a line within about ``seconds``; None means that CloudWatch has stored it.

        botocore repeats each call with pauses of up to 20 s, so calls are repeated here: the last
        one begins near the end. The less important line ``before`` goes along in the first attempt
        only: it may be why that fails.
        """
        deadline_ns = self._clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        pause_seconds = _FIRST_PAUSE_SECONDS
        client: AwsClient = None
        lines = (line,) if before is None or seconds < _MIN_SECONDS_FOR_TWO else (before, line)
        while True:
            client, answer = self._send_or_reconnect(client, lines, self._clock.wall_ns(), target)
            failure: DeliveryFailure | None
            if isinstance(answer, DeliveryFailure):
                failure = answer
            else:
                failure = _failure_in_answer(answer, target, len(lines))
            had_two = len(lines) > 1
            lines = (line,)
            if not isinstance(failure, TransientFailure):
                if failure is None or not had_two:
                    return failure
                continue
            self._note_cause(failure.reason)
            if failure.has_expired:
                client = None
            left_seconds = (
                deadline_ns - self._clock.monotonic_ns()
            ) / NS_PER_SECOND - _LAST_ATTEMPT_SECONDS
            if left_seconds <= 0:
                return timed_out_failure(seconds, failure.reason)
            self._clock.sleep(min(pause_seconds, left_seconds))
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    def holds_report(self, target: LogTarget, batch: str, seconds: float) -> bool:
        """Whether the last lines of the log stream have the report of a container; False if they
        cannot be read.
        """
        # See the module's docstring.
        from profiler.sinks.upload_failures import SDK_ERRORS, delivery_failure_of

        deadline_ns = self._clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        where = {"logGroupName": target.group, "logStreamName": target.stream}
        while True:
            try:
                client = self._connect(target.region, self._note_cause)
                pages = pages_backwards(
                    partial(client.get_log_events, **where, startFromHead=False), _MAX_PAGES
                )
                events = next(filter(None, (page.get("events") for page in pages)), ())
            except SDK_ERRORS as error:
                is_late = (
                    self._clock.monotonic_ns() + round(_MAX_PAUSE_SECONDS * NS_PER_SECOND)
                    >= deadline_ns
                )
                if is_late or not isinstance(delivery_failure_of(error, target), TransientFailure):
                    return False
                self._clock.sleep(_MAX_PAUSE_SECONDS)
                continue
            messages = [str(event.get("message")) for event in events]
            return any(_REPORT_TYPE in message and batch in message for message in messages)

    def check_permission(self, target: LogTarget) -> DeliveryFailure | None:
        """Check that a line could be put: CloudWatch drops so old an event after its checks.

        None means success.
        """
        _, answer = self._send_or_reconnect(
            None, (_PROBE_MESSAGE,), self._clock.wall_ns() - _PROBE_AGE_NS, target
        )
        if isinstance(answer, TransientFailure):
            return DeliveryFailure(f"CloudWatch Logs cannot be reached: {answer.reason}.")
        return answer if isinstance(answer, DeliveryFailure) else None

    def _note_cause(self, cause: str) -> None:
        self.last_cause = cause

    def _send_or_reconnect(
        self, client: AwsClient, lines: Sequence[bytes], time_ns: int, target: LogTarget
    ) -> tuple[AwsClient, Mapping[str, object] | DeliveryFailure]:
        """Send lines with the client, or with a new one; returns the client and the answer."""
        # See the module's docstring.
        from profiler.sinks.upload_failures import (
            SDK_ERRORS,
            delivery_failure_of,
            was_already_stored,
        )

        events = [{"timestamp": time_ns // NS_PER_MS, "message": line.decode()} for line in lines]
        try:
            client = client or self._connect(target.region, self._note_cause)
            answer = client.put_log_events(
                logGroupName=target.group, logStreamName=target.stream, logEvents=events
            )
        except SDK_ERRORS as error:
            return client, {} if was_already_stored(error) else delivery_failure_of(error, target)
        return client, answer


def connect_logs_client(
    region: str | None,
    on_failure: Callable[[str], None] = lambda _cause: None,
    *,
    profile: str | None = None,
) -> AwsClient:
    """A client of a region, with the credentials that boto3 finds now; see
    :func:`logs_client.make_logs_client`.
    """
    from profiler.sinks.logs_client import make_logs_client  # see the module's docstring

    return make_logs_client(region, on_failure, profile)


def timed_out_failure(seconds: float, cause: str) -> DeliveryFailure:
    """The failure after all attempts within ``seconds``, with the cause of the last one as part
    of a sentence.
    """
    return DeliveryFailure(
        f"CloudWatch Logs did not accept the line within {seconds:.3g} s, the rest of the stop "
        f"budget: {cause}."
    )


def _failure_in_answer(
    answer: Mapping[str, object], target: LogTarget, events: int
) -> DeliveryFailure | None:
    """The failure in a response with HTTP 200: CloudWatch lists the events outside of the
    accepted time.

    An ``…EndIndex`` is the first event that is not dropped. The report, the last one, may be stored
    without the first.
    """
    rejected = answer.get("rejectedLogEventsInfo")
    if not isinstance(rejected, dict) or not rejected:
        return None
    if events > 1 and all(
        str(key).endswith("EndIndex") and end == events - 1 for key, end in rejected.items()
    ):
        return None
    reasons = ", ".join(_REJECTIONS.get(str(key), str(key)) for key in rejected)
    return DeliveryFailure(f"CloudWatch Logs dropped the report for {target.stream}: {reasons}.")

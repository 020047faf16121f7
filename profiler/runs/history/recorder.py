"""Adds a run to the history; while it lasts, it is written down as a run in progress every 1 to
60 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from profiler.core.background_call import BackgroundCall, NoCall, run_with_timeout
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.bounded_json_line import encode_line, truncate_text
from profiler.record.record_model import Report
from profiler.runs.history.history_file import LOCK_TIMEOUT_SECONDS, history_path

if TYPE_CHECKING:
    from profiler.aggregation.time_series import RunSeries
    from profiler.runs.history.run_database import HistoryStore

_T = TypeVar("_T")

MAX_RUNS = 10_000
# The end of a run waits at most this long for a write in progress.
_MAX_WRITE_SECONDS = 0.5
# The exit code waits at most this long for the disk, and for other processes that lock the file.
_MAX_ADD_SECONDS = 2 * LOCK_TIMEOUT_SECONDS
# Each waits for the lock.
_TRIES_BESIDE_OWN_WRITE = 2
# The report waits at most this long for the last runs of its family.
_MAX_SEARCH_SECONDS = 0.25
_NO_STEPS = b"[]"


class HistoryRecorder:
    """Records one run of the command ``words`` in the history."""

    max_steps = 10_000  # of a stored time series

    def __init__(self, environment: Mapping[str, str], clock: Clock, words: Sequence[str]) -> None:
        self._environment = environment
        self._clock = clock
        self._words = words
        self._write_call: NoCall[bool] = NoCall()
        self._began_ns: int | None = None
        self._due_ns: int | None = 0

    @property
    def has_place(self) -> bool:
        """Whether the history has a file: without HOME, it may have none."""
        try:
            history_path(self._environment)
        except TaskProfilerError:
            return False
        return True

    def keep_so_far(self, build_so_far: Callable[[], tuple[Report, RunSeries | None]]) -> None:
        """Write down the run so far, if due: this process may be killed.

        A failure is silent: the end adds the run.
        """
        now_ns = self._clock.monotonic_ns()
        if self._due_ns is None or now_ns < self._due_ns or self._write_call.is_running:
            return
        if self._began_ns is None:
            self._began_ns = now_ns
        # A killed profiler loses at most a tenth of the run, and at most a minute. Writing 10,000
        # points takes 30 ms.
        pause_ns = max(round((now_ns - self._began_ns) * 0.1), NS_PER_SECOND)
        self._due_ns = now_ns + min(pause_ns, 60 * NS_PER_SECOND)
        try:
            report, series = build_so_far()
            series = (
                None if series is None else series.copy_within_limits()
            )  # the thread reads the copy
            line = encode_line(report)
        except Exception:  # noqa: BLE001  the command goes on, and the end has its own report
            self._due_ns = None
            return
        # In a thread, because a file system may hang.
        self._write_call = BackgroundCall(
            lambda: self._write_if_possible(line, report, series), self._clock, _MAX_WRITE_SECONDS
        )

    def _write_if_possible(self, line: bytes, report: Report, series: RunSeries | None) -> bool:
        with suppress(TaskProfilerError, ImportError):  # adding the run reports what is wrong
            store = self._open_history(_MAX_WRITE_SECONDS)
            store.keep_running(
                line, report, _encoded_steps(report, series), self._redacted_command()
            )
        return True

    def _redacted_command(self) -> str:
        """The command line without secrets, cut if it is very long."""
        # Its regular expressions take a while to compile.
        from profiler.core.redaction import redact

        return truncate_text(without_surrogates(redact(self._words)), 4000)

    def _open_history(self, max_wait_seconds: float) -> HistoryStore:
        """The history. Raises TaskProfilerError, or ImportError for a Python without SQLite."""
        path = history_path(self._environment)
        # sqlite3 would delay every start.
        from profiler.runs.history.run_database import HistoryStore

        return HistoryStore(path, self._clock, max_wait_seconds)

    def search_history(self, find: Callable[[HistoryStore], _T]) -> Callable[[], _T | None]:
        """Search the history, in a thread.

        Call the result to wait, but briefly; it is None whatever goes wrong.
        """

        def search() -> _T | None:
            with suppress(TaskProfilerError, ImportError):  # adding the run reports what is wrong
                return find(self._open_history(_MAX_SEARCH_SECONDS))
            return None

        return BackgroundCall(search, self._clock, _MAX_SEARCH_SECONDS).result

    def add_run(
        self,
        line: bytes,
        report: Report,
        series: RunSeries | None,
        stacks_line: bytes | None = None,
    ) -> tuple[str, ...]:
        """Add the run, in a thread, because a file system may hang. Returns a sentence about a
        failure, which affects only the entry.
        """
        sentences = run_with_timeout(
            _MAX_ADD_SECONDS, lambda: self._add_run(line, report, series, stacks_line)
        )
        if sentences is not None:
            return sentences
        sentence = (
            f"This run may be missing in the history: {history_path(self._environment)} did not "
            f"take it within {_MAX_ADD_SECONDS} s. If its disk is slow or hangs, name a file on "
            "another by TASK_PROFILER_HISTORY."
        )
        return (sentence,)

    def _add_run(
        self, line: bytes, report: Report, series: RunSeries | None, stacks_line: bytes | None
    ) -> tuple[str, ...]:
        self._write_call.result()
        try:
            store = self._open_history(LOCK_TIMEOUT_SECONDS - _MAX_SEARCH_SECONDS)
            points = _encoded_steps(report, series)
            command = self._redacted_command()
            add = partial(
                store.add_run,
                line,
                report,
                points,
                command,
                max_runs=MAX_RUNS,
                stacks_line=stacks_line,
            )
            if self._retry_after_own_write(add):
                store.add_abandoned_runs()
        except TaskProfilerError as error:
            return (f"This run is not in the history. {error}",)
        except ImportError as error:
            sentence = (
                f"This run is not in the history: this Python has no SQLite ({error}), use "
                "another one."
            )
            return (sentence,)
        return ()

    def _retry_after_own_write(self, add: Callable[[], bool]) -> bool:
        """The result of ``add``. It is tried again if the write in progress, which a slow disk
        delays, may be what locks the file.
        """
        for _ in range(_TRIES_BESIDE_OWN_WRITE):
            if not self._write_call.is_running:
                break
            with suppress(TaskProfilerError):
                return add()
        return add()


def _encoded_steps(report: Report, series: RunSeries | None) -> bytes:
    """The steps as the history keeps them."""
    if series is None:
        return _NO_STEPS
    from profiler.runs.step_series import (  # as for the readings
        encode_steps,
        steps_of_collected_series,
    )

    return encode_steps(steps_of_collected_series(series, report.record.metrics.duration_ms))

"""Health, logs, bounded calls, the grid, the stop signals and the output: small parts, each with its promise."""

import io
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import BinaryIO, cast

import pytest

from profiler.bounded import run_with_timeout
from profiler.clock import SystemClock, Ticker
from profiler.logs import JsonLog
from profiler.sinks import DeliveryFailure
from profiler.sinks.stdout import StreamSink
from profiler.sources import Unavailable
from profiler.sources.endpoint import AdaptiveTimeout
from profiler.sources.health import SourceHealth
from profiler.sources.own_process import read_own_usage
from profiler.stop import StopSignals
from tests.fakes import FakeLog, seconds


def test_a_failing_source_is_logged_once_per_change_of_state() -> None:
    log = FakeLog()
    health = SourceHealth("/task/stats", log)
    health.on_success()
    for reason in ("HTTP 500", "HTTP 500", "HTTP 429", "HTTP 429"):
        health.on_failure(Unavailable(reason))
    health.on_success()
    health.on_success()
    health.on_failure(Unavailable("HTTP 500"))
    assert health.failures == 5
    assert [(level, fields) for level, _, fields in log.lines] == [
        ("warning", {"reason": "HTTP 500"}),
        ("warning", {"reason": "HTTP 429"}),
        ("info", {"failures": 2}),
        ("warning", {"reason": "HTTP 500"}),
    ]


def test_log_lines_are_json() -> None:
    stream = io.BytesIO()
    JsonLog(stream).error("It broke.", reason='with "quotes"\nand a newline')
    JsonLog(stream).info("Fine.")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["level"], first["event"], first["reason"]) == ("error", "It broke.", 'with "quotes"\nand a newline')
    assert second["level"] == "info"
    assert first["timestamp"].endswith("Z")


def test_a_log_that_nobody_reads_is_survived() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as stream:
        JsonLog(stream).warning("Nobody hears this.")


class FullDisk(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, _data: object, /) -> int:
        raise OSError(28, "No space left on device")


def test_an_output_that_is_full_is_a_reason() -> None:
    failure = StreamSink(cast("BinaryIO", FullDisk())).write(b"line")
    assert isinstance(failure, DeliveryFailure)
    assert "No space left" in failure.reason
    good = io.BytesIO()
    assert StreamSink(good).write(b"line") is None
    assert good.getvalue() == b"line\n"


def test_a_bounded_call_gives_its_result_or_gives_up() -> None:
    assert run_with_timeout(10, lambda: 5) == 5
    never = threading.Event()
    assert run_with_timeout(0, never.wait) is None
    never.set()
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(10, lambda: 1 // 0)


def test_ticks_lie_on_a_grid_and_lateness_does_not_accumulate() -> None:
    grid = Ticker(seconds(100), seconds(1))
    assert grid.seconds_to_next(seconds(100)) == 1
    assert grid.seconds_to_next(seconds(101.25)) == 0.75
    assert grid.missed == 0
    assert grid.seconds_to_next(seconds(104.5)) == 0.5
    assert grid.missed == 2
    assert grid.seconds_to_next(seconds(104.5)) == 1.5


def test_the_systems_clocks_move_on() -> None:
    clock = SystemClock()
    before = clock.monotonic_ns()
    clock.sleep(0)
    assert clock.monotonic_ns() >= before
    assert clock.wall_ns() > seconds(1_700_000_000)


def test_patience_doubles_after_two_timeouts_in_a_row_and_stays() -> None:
    adaptive_timeout = AdaptiveTimeout(1.0)
    assert adaptive_timeout.timeout_seconds == pytest.approx(0.9)
    adaptive_timeout.on_timeout()
    adaptive_timeout.on_success()
    adaptive_timeout.on_timeout()
    assert adaptive_timeout.timeout_seconds == pytest.approx(0.9)
    adaptive_timeout.on_timeout()
    assert adaptive_timeout.timeout_seconds == pytest.approx(1.8)
    adaptive_timeout.on_success()
    for _ in range(10):
        adaptive_timeout.on_timeout()
    assert adaptive_timeout.timeout_seconds == 5
    assert AdaptiveTimeout(60).timeout_seconds == 5


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts back what catches the signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(-1)
    yield
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_signal_ends_the_wait_and_its_first_moment_is_remembered() -> None:
    moments = iter((7, 8))
    stop = StopSignals(lambda: next(moments))
    assert not stop.wait(0)
    assert stop.requested_ns is None
    stop.install()
    threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert stop.wait(30)
    assert stop.requested_ns == 7
    assert stop.wait(30)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested_ns == 7


@pytest.mark.usefixtures("handlers")
def test_a_signal_ends_the_wait_for_an_answer_but_only_once() -> None:
    stop = StopSignals(lambda: 7)
    stop.install()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        assert stop.wait_readable(ours, 30)
        ours.recv(1)
        assert not stop.wait_readable(ours, 0)
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert not stop.wait_readable(ours, 30)
        threading.Timer(0, theirs.send, (b"x",)).start()
        assert stop.wait_readable(ours, 30), "the signal is no reason any more"


def test_the_own_process_has_used_something() -> None:
    used = read_own_usage()
    assert used.cpu_seconds > 0
    assert used.max_rss_mb is not None
    assert used.max_rss_mb > 5

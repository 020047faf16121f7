"""SIGTERM and SIGINT as a stop request."""

import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from profiler.core.signal_handler import SignalHandler
from profiler.core.threads import WakeEvent
from tools.waiting import LIMIT_SECONDS


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the signal handlers, and closes the pipes of those that a test installs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(-1)
    pipes: list[int] = []

    def opened(flags: int, make: Callable[[int], tuple[int, int]] = os.pipe2) -> tuple[int, int]:
        ends = make(flags)
        pipes.extend(ends)
        return ends

    monkeypatch.setattr(os, "pipe2", opened)
    yield
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)
    for descriptor in pipes:
        os.close(descriptor)


@pytest.mark.usefixtures("handlers")
def test_a_signal_ends_the_wait_and_the_time_of_the_first_is_kept() -> None:
    moments = iter((7, 8))
    stop = SignalHandler(lambda: next(moments))
    assert not stop.wait(0)
    assert stop.requested_ns is None
    stop.install()
    threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert stop.wait(LIMIT_SECONDS)
    assert stop.requested_ns == 7
    assert stop.wait(LIMIT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested_ns == 7


@pytest.mark.usefixtures("handlers")
def test_a_signal_ends_the_wait_for_a_response_but_only_once() -> None:
    stop = SignalHandler(lambda: 7)
    stop.install()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        assert stop.wait_readable(ours, LIMIT_SECONDS)
        ours.recv(1)
        assert not stop.wait_readable(ours, 0)
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert not stop.wait_readable(ours, LIMIT_SECONDS)
        threading.Timer(0, theirs.send, (b"x",)).start()
        assert stop.wait_readable(ours, LIMIT_SECONDS), "a signal interrupts only once"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """New descriptors get numbers above 1023, where select(2) ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
    opened = [os.open("/dev/null", os.O_RDONLY)]
    while opened[-1] < 1024:
        opened.append(os.dup(opened[0]))
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("handlers", "many_descriptors")
def test_descriptors_above_1023_can_be_waited_for() -> None:
    stop = SignalHandler(lambda: 7)
    stop.install()
    woken = WakeEvent()
    woken.set()
    woken.wait(LIMIT_SECONDS)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert min(ours.fileno(), woken.descriptor) > 1023
        theirs.send(b"x")
        assert stop.wait_readable(ours, LIMIT_SECONDS)
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(LIMIT_SECONDS)
    woken.close()


@pytest.mark.usefixtures("handlers")
def test_a_signal_between_two_waits_ends_the_second() -> None:
    """Without this, the second wait would take its whole time, which was chosen before the
    signal.
    """
    stop = SignalHandler(lambda: 7)
    stop.install()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not stop.wait_readable(ours, 0)
        signal.raise_signal(signal.SIGTERM)
        assert not stop.wait_readable(ours, 3600)
        theirs.send(b"x")
        assert stop.wait_readable(ours, 3600)

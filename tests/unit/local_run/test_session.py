"""How a run is sampled and signals reach the command. Most of it is in tests/integration/test_run.py."""

import os
import signal
from unittest.mock import Mock

import pytest

from profiler.core.clock import SystemClock
from profiler.local_run.command_supervisor import Supervisor
from profiler.local_run.session import _Session


def test_a_signal_that_may_not_be_sent_to_the_command_is_not_the_profilers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    supervisor = Supervisor(os.getpid(), SystemClock(), (), lambda: None)
    signals = [None, signal.struct_siginfo((signal.SIGTERM, 0, 0, 1, 0, 0, 0))]
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: signals.pop())
    assert not supervisor.wait_until_exit(0)
    assert not signals


def test_the_imports_before_a_full_reading_do_not_count_as_its_time() -> None:
    session = Mock(_clock=Mock(monotonic_ns=lambda: 265), _has_tick=False)
    _Session._read(session, "full", 250)
    session._sample.assert_called_once_with(265, is_tick=False)

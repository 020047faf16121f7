"""How a run is sampled. Most of it is in tests/integration/test_run.py."""

from unittest.mock import Mock

from profiler.local_run.session import _Session


def test_the_imports_before_a_full_reading_do_not_count_as_its_time() -> None:
    session = Mock(_clock=Mock(monotonic_ns=lambda: 265), _has_tick=False)
    _Session._read(session, "full", 250)
    session._sample.assert_called_once_with(265, is_tick=False)

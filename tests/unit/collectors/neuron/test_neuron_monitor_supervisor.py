from profiler.collectors.neuron.neuron_monitor_supervisor import Supervision
from profiler.core.timestamps import NS_PER_SECOND
from tests.fakes import FakeClock, seconds


class Life:
    """A supervised program on the fake clock."""

    def __init__(self, period_seconds: int = 1) -> None:
        self.clock = FakeClock()
        self.state = Supervision(period_seconds)

    def start(self) -> None:
        assert self.state.is_start_due(self.clock.monotonic_ns())
        self.state.on_started(self.clock.monotonic_ns())

    def report(self, times: int = 1) -> None:
        for _ in range(times):
            self.state.on_report(self.clock.monotonic_ns())

    def end(self) -> float:
        """The seconds until the next start."""
        now_ns = self.clock.monotonic_ns()
        self.state.on_exit(now_ns)
        waited = (self.state.deadline_ns - now_ns) / NS_PER_SECOND
        assert not self.state.is_start_due(self.state.deadline_ns - 1)
        self.clock.advance(waited)
        return waited


def test_the_backoff_doubles_from_one_second_to_a_minute() -> None:
    life = Life()
    waits = []
    for _ in range(9):
        life.start()
        life.report()
        waits.append(life.end())
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert life.state.starts == 9


def test_ten_reports_in_a_row_reset_the_backoff() -> None:
    life = Life()
    for reports, wait in ((9, 1), (9, 2), (10, 1), (1, 2)):
        life.start()
        life.report(reports)
        assert life.end() == wait


def test_silence_is_ten_seconds_or_five_periods_since_the_start_or_the_last_report() -> None:
    for period, silence in ((1, 10), (2, 10), (3, 15), (60, 300)):
        life = Life(period)
        life.start()
        assert not life.state.is_silent(seconds(silence) - 1)
        assert life.state.is_silent(seconds(silence))
        life.clock.advance(silence - 1)
        life.report()
        assert not life.state.is_silent(seconds(2 * silence - 1) - 1)
        assert life.state.is_silent(seconds(2 * silence - 1))

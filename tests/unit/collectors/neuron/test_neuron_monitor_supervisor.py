from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.neuron.neuron_monitor_supervisor import Supervision
from profiler.core.timestamps import NS_PER_SECOND
from tests.fakes import FakeClock, seconds


class Life:
    """A supervised program on the fake clock; no jitter unless a test says so."""

    def __init__(self, period_seconds: int = 1) -> None:
        self.clock = FakeClock()
        self.state = Supervision(period_seconds)

    def start(self) -> None:
        assert self.state.is_start_due(self.clock.monotonic_ns())
        self.state.on_started(self.clock.monotonic_ns())

    def report(self, times: int = 1) -> None:
        for _ in range(times):
            self.state.on_report(self.clock.monotonic_ns())

    def end(self, jitter: float = 0) -> float:
        """The seconds until the next start."""
        now_ns = self.clock.monotonic_ns()
        self.state.on_exit(now_ns, jitter)
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
    assert not life.state.is_unavailable
    assert life.state.restarts == 8


def test_ten_reports_in_a_row_reset_the_backoff() -> None:
    life = Life()
    for reports, wait in ((9, 1), (9, 2), (10, 1), (1, 2)):
        life.start()
        life.report(reports)
        assert life.end() == wait


def test_jitter_lengthens_a_wait_by_a_quarter_at_most_and_never_above_a_minute() -> None:
    life = Life()
    waits = []
    for _ in range(7):
        life.start()
        life.report()
        waits.append(life.end(jitter=1))
    assert waits == [1.25, 2.5, 5, 10, 20, 40, 60]


def test_five_ends_without_a_report_make_it_unavailable_and_a_report_available() -> None:
    life = Life()
    waits: list[float] = []
    for _ in range(7):
        assert life.state.is_unavailable == (len(waits) >= 5)
        life.start()
        waits.append(life.end())
    assert waits == [1, 2, 4, 8, 60, 60, 60]
    life.start()
    life.report()
    assert not life.state.is_unavailable
    assert life.state.empty_runs == 0


def test_a_report_between_them_begins_the_count_of_ends_anew() -> None:
    life = Life()
    for reports in (0, 0, 0, 0, 1, 0, 0, 0, 0):
        life.start()
        life.report(reports)
        life.end()
    assert not life.state.is_unavailable


def test_a_missing_program_is_tried_every_minute_and_never_counts_as_started() -> None:
    life = Life()
    for minute in range(3):
        assert life.state.is_start_due(seconds(60 * minute))
        life.state.on_missing_program(seconds(60 * minute))
        assert not life.state.is_start_due(seconds(60 * minute + 59))
    assert life.state.is_unavailable
    assert (life.state.starts, life.state.restarts) == (0, 0)
    life.clock.advance(180)
    life.start()
    life.report()
    assert not life.state.is_unavailable


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


@given(st.lists(st.tuples(st.sampled_from(["report", "end", "missing"]), st.floats(0, 1)), max_size=60))
def test_every_wait_is_between_one_second_and_a_minute(events: list[tuple[str, float]]) -> None:
    life = Life()
    for event, jitter in events:
        now_ns = life.clock.monotonic_ns()
        if not life.state.is_running:
            life.start()
        if event == "report":
            life.report()
        elif event == "end":
            assert 1 <= life.end(jitter) <= 60
        else:
            life.end()
            life.state.on_missing_program(life.clock.monotonic_ns())
            life.clock.advance(60)
        assert life.clock.monotonic_ns() >= now_ns
        assert life.state.restarts == max(life.state.starts - 1, 0)

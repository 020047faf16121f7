"""When neuron-monitor is started, taken for dead, and started again. Pure: the time is passed in.

    due ──started──> running ──ended──> waiting (1 s, doubled up to 60 s) ──> due
                        └── silent for max(10 s, 5 periods): it is ended, too

After five ends in a row without a single report, or while there is no such program, it is
unavailable: tried again every 60 s. A report makes it available; ten in a row set the waiting back to 1 s.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.times import NS_PER_SECOND

MIN_BACKOFF_NS = NS_PER_SECOND
MAX_BACKOFF_NS = 60 * NS_PER_SECOND
EXITS_UNTIL_UNAVAILABLE = 5
REPORTS_UNTIL_BACKOFF_RESET = 10
_MIN_SILENCE_TIMEOUT_NS = 10 * NS_PER_SECOND
_SILENCE_TIMEOUT_PERIODS = 5
# Waits are lengthened by up to this share, so that the tasks of a machine do not start in step.
_JITTER_SHARE = 0.25


class SupervisionState(Struct, frozen=True, kw_only=True):
    """The state; its methods give the next one.

    ``deadline_ns`` (monotonic) is when the next start is due or, while it runs, when it has been
    silent for too long. ``empty_runs`` counts over the whole run, ``consecutive_empty_runs``
    since the last report.
    """

    silence_timeout_ns: int
    deadline_ns: int = 0
    is_running: bool = False
    is_unavailable: bool = False
    starts: int = 0
    reports: int = 0
    consecutive_empty_runs: int = 0
    empty_runs: int = 0
    backoff_ns: int = MIN_BACKOFF_NS

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(self.starts - 1, 0)

    def is_start_due(self, now_ns: int) -> bool:
        """Whether it is to be started now."""
        return not self.is_running and now_ns >= self.deadline_ns

    def is_silent(self, now_ns: int) -> bool:
        """Whether it runs and has said nothing for too long."""
        return self.is_running and now_ns >= self.deadline_ns

    def on_started(self, now_ns: int) -> "SupervisionState":
        """A process was started."""
        return replace(
            self, is_running=True, starts=self.starts + 1, reports=0, deadline_ns=now_ns + self.silence_timeout_ns
        )

    def on_report(self, now_ns: int) -> "SupervisionState":
        """A report came."""
        reports = self.reports + 1
        return replace(
            self,
            reports=reports,
            is_unavailable=False,
            consecutive_empty_runs=0,
            backoff_ns=MIN_BACKOFF_NS if reports >= REPORTS_UNTIL_BACKOFF_RESET else self.backoff_ns,
            deadline_ns=now_ns + self.silence_timeout_ns,
        )

    def on_exit(self, now_ns: int, jitter: float) -> "SupervisionState":
        """The process is gone, or could not be started; ``jitter`` is a random number from 0 to 1."""
        fruitless = 0 if self.is_running and self.reports else 1
        in_a_row = self.consecutive_empty_runs + fruitless
        is_unavailable = in_a_row >= EXITS_UNTIL_UNAVAILABLE
        backoff_ns = MAX_BACKOFF_NS if is_unavailable else round(self.backoff_ns * (1 + _JITTER_SHARE * jitter))
        return replace(
            self,
            is_running=False,
            is_unavailable=is_unavailable,
            consecutive_empty_runs=in_a_row,
            empty_runs=self.empty_runs + fruitless,
            backoff_ns=min(2 * self.backoff_ns, MAX_BACKOFF_NS),
            deadline_ns=now_ns + min(backoff_ns, MAX_BACKOFF_NS),
        )

    def on_missing_program(self, now_ns: int) -> "SupervisionState":
        """There is no such program."""
        return replace(self, is_unavailable=True, deadline_ns=now_ns + MAX_BACKOFF_NS)


def initial_supervision(period_seconds: int) -> SupervisionState:
    """The beginning: a start is due at once."""
    return SupervisionState(
        silence_timeout_ns=max(_MIN_SILENCE_TIMEOUT_NS, _SILENCE_TIMEOUT_PERIODS * period_seconds * NS_PER_SECOND)
    )

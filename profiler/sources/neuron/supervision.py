"""When neuron-monitor is started, taken for dead, and started again. Pure: the time is passed in.

    due ──started──> running ──ended──> waiting (1 s, doubled up to 60 s) ──> due
                        └── silent for max(10 s, 5 periods): it is ended, too

After five ends in a row without a single report, or while there is no such program, it is
unavailable: tried again every 60 s. A report makes it available; ten in a row set the waiting back to 1 s.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.times import NS_PER_SECOND

FIRST_WAIT_NS = NS_PER_SECOND
LONGEST_WAIT_NS = 60 * NS_PER_SECOND
ENDS_UNTIL_UNAVAILABLE = 5
REPORTS_UNTIL_TRUSTED = 10
_LEAST_SILENCE_NS = 10 * NS_PER_SECOND
_SILENT_PERIODS = 5
# Waits are lengthened by up to this share, so that the tasks of a machine do not start in step.
_JITTER_SHARE = 0.25


class Supervision(Struct, frozen=True, kw_only=True):
    """The state; its methods give the next one.

    ``alarm_ns`` (monotonic) is when the next start is due or, while it runs, when it has been
    silent for too long. ``ends_without_report`` counts over the whole run, ``fruitless_in_a_row``
    since the last report.
    """

    silence_ns: int
    alarm_ns: int = 0
    running: bool = False
    unavailable: bool = False
    starts: int = 0
    reports: int = 0
    fruitless_in_a_row: int = 0
    ends_without_report: int = 0
    wait_ns: int = FIRST_WAIT_NS

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(self.starts - 1, 0)

    def start_is_due(self, now_ns: int) -> bool:
        """Whether it is to be started now."""
        return not self.running and now_ns >= self.alarm_ns

    def is_silent(self, now_ns: int) -> bool:
        """Whether it runs and has said nothing for too long."""
        return self.running and now_ns >= self.alarm_ns

    def started(self, now_ns: int) -> "Supervision":
        """A process was started."""
        return replace(self, running=True, starts=self.starts + 1, reports=0, alarm_ns=now_ns + self.silence_ns)

    def reported(self, now_ns: int) -> "Supervision":
        """A report came."""
        reports = self.reports + 1
        return replace(
            self,
            reports=reports,
            unavailable=False,
            fruitless_in_a_row=0,
            wait_ns=FIRST_WAIT_NS if reports >= REPORTS_UNTIL_TRUSTED else self.wait_ns,
            alarm_ns=now_ns + self.silence_ns,
        )

    def ended(self, now_ns: int, jitter: float) -> "Supervision":
        """The process is gone, or could not be started; ``jitter`` is a random number from 0 to 1."""
        fruitless = 0 if self.running and self.reports else 1
        in_a_row = self.fruitless_in_a_row + fruitless
        unavailable = in_a_row >= ENDS_UNTIL_UNAVAILABLE
        wait_ns = LONGEST_WAIT_NS if unavailable else round(self.wait_ns * (1 + _JITTER_SHARE * jitter))
        return replace(
            self,
            running=False,
            unavailable=unavailable,
            fruitless_in_a_row=in_a_row,
            ends_without_report=self.ends_without_report + fruitless,
            wait_ns=min(2 * self.wait_ns, LONGEST_WAIT_NS),
            alarm_ns=now_ns + min(wait_ns, LONGEST_WAIT_NS),
        )

    def missing(self, now_ns: int) -> "Supervision":
        """There is no such program."""
        return replace(self, unavailable=True, alarm_ns=now_ns + LONGEST_WAIT_NS)


def supervision(period_seconds: int) -> Supervision:
    """The beginning: a start is due at once."""
    return Supervision(silence_ns=max(_LEAST_SILENCE_NS, _SILENT_PERIODS * period_seconds * NS_PER_SECOND))

"""The limits of a change of a task definition's size, and a decision on one."""

from typing import Literal

from msgspec import Struct

from profiler.record.measured import UNKNOWN, Measured
from profiler.record.record_model import SlowdownBounds, TaskSize
from profiler.record.units import format_count
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.size_options import EstimateBasis, mark_of_estimates

ResizeAction = Literal["resize", "revert", "keep", "none"]


class ResizePolicy(Struct, frozen=True, kw_only=True):
    """The limits of a change."""

    size: SizePolicy = SizePolicy()
    min_saving_percent: float = 10
    min_runs: int = 20


class ResizeVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a new size, by its runs. None: not known."""

    runs: int
    killed: int
    failed: int
    duration_change_percent: float | None = None
    saved_usd_per_month: float | None = None


class ShownEvidence(Struct, frozen=True, kw_only=True):
    """What a person should see before a size changes.

    ``peak`` is the largest need of a run in MiB, which began at ``peak_at``. ``runs`` began on the
    last ``days``. ``duration`` has the bounds of the duration at the new size. ``unconfirmed`` runs
    do not count: nobody vouches for their task, or their report is not in the log group and under
    the prefix of the definition. Of the runs ``elsewhere`` than on Fargate, only the needs count;
    ``by_minute`` are Container Insights' beside reports, which can only forbid a size.
    ``killed_above_mb`` is the largest size at which a run was killed: it needs more than that.
    ``margin_percent`` is that above the largest need.
    """

    runs: int
    days: int
    peak: Measured = UNKNOWN
    peak_at: str | None = None
    duration: SlowdownBounds | None = None
    unconfirmed: int = 0
    elsewhere: int = 0
    by_minute: int = 0
    killed_above_mb: float | None = None
    margin_percent: float | None = None

    @property
    def left_out_runs_sentences(self) -> tuple[str, ...]:
        """Sentences on the runs that do not count, or of which only a part counts."""
        sentences = []
        if self.unconfirmed:
            sentences.append(
                f"{_not_counted_sentence(self.unconfirmed)}: the task was not confirmed, or the "
                "report is not where the definition sends it, or task_stopped knows no such task."
            )
        if self.by_minute:
            sentences.append(
                f"{format_count(self.by_minute, 'run')} can only forbid less memory: Container "
                "Insights knows neither the peaks nor the ends."
            )
        if self.elsewhere:
            sentences.append(
                f"Of {format_count(self.elsewhere, 'run')} outside Fargate only the needs count, "
                "not the cost."
            )
        return tuple(sentences)


def _not_counted_sentence(runs: int) -> str:
    verb = "does" if runs == 1 else "do"
    return f"{format_count(runs, 'run')} {verb} not count"


class ResizeDecision(Struct, frozen=True, kw_only=True):
    """The decision on a family.

    ``size`` is the new one; of action ``none``, the one that would be better.

    ``saving_usd_per_month`` is negative for a larger size, and ``usd_per_month`` what the runs cost
    now. ``estimated_by``: by what these amounts are estimates. ``is_decided_by_others``: somebody
    else decides on the definition, or nobody can.
    """

    action: ResizeAction
    reason: str
    runs: int
    size: TaskSize | None = None
    saving_usd_per_month: float | None = None
    usd_per_month: float | None = None
    estimated_by: tuple[EstimateBasis, ...] = ()
    verdict: ResizeVerdict | None = None
    evidence: ShownEvidence | None = None
    is_decided_by_others: bool = False

    @property
    def monthly_amount_mark(self) -> str:
        """The mark of the amounts."""
        return mark_of_estimates(self.estimated_by)

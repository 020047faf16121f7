"""Numbers as the record shows them: units converted, rounded, None kept None."""

from profiler.record import Distribution, Number
from profiler.series import TimeWeightedStatistics
from profiler.sources.container_stats import ContainerSample
from profiler.times import NS_PER_SECOND

MIB = 1024 * 1024
VCPU_DIGITS = 5
CPU_SECONDS_DIGITS = 6
_MIN_BILLED_SECONDS = 60


def as_number(value: float | None) -> Number | None:
    """A whole number without a fraction, any other with at most three digits."""
    if value is None:
        return None
    return int(value) if float(value).is_integer() else round(value, 3)


def mebibytes(size_bytes: float | None) -> Number | None:
    """Bytes as the record's MB (MiB)."""
    return None if size_bytes is None else as_number(size_bytes / MIB)


def vcpu_between(before: ContainerSample | None, sample: ContainerSample) -> float | None:
    """The vCPU in use over the step between two samples.

    None if ``read`` did not move on, the counter is not known, or it was set back in between.
    """
    if before is None or before.cpu_ns is None or sample.cpu_ns is None:
        return None
    step_ns, growth_ns = sample.read_ns - before.read_ns, sample.cpu_ns - before.cpu_ns
    return growth_ns / step_ns if step_ns > 0 and growth_ns >= 0 else None


def percent_of(series: TimeWeightedStatistics, size: float | None) -> Distribution | None:
    """A quantity as a percentage of what bounds it; None if the bound is not known."""
    return series.distribution(per=size / 100) if size else None


def span_ms(start_ns: int | None, end_ns: int | None) -> int | None:
    """Milliseconds from one time to another; None if either is unknown or they are reversed."""
    if start_ns is None or end_ns is None or end_ns < start_ns:
        return None
    return (end_ns - start_ns) // 1_000_000


def billed_ms(pull_started_ns: int | None, ended_ns: int | None) -> int | None:
    """Start of the image pull to the end, up to the next whole second, at least a minute: Fargate's rule."""
    if pull_started_ns is None or ended_ns is None or ended_ns < pull_started_ns:
        return None
    seconds = -((pull_started_ns - ended_ns) // NS_PER_SECOND)
    return max(seconds, _MIN_BILLED_SECONDS) * 1000

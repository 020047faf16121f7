"""What a check of a proof says: what is assumed, and what was seen."""

from msgspec import Struct

from profiler.aws_account.proof.arrivals import ProofTask
from profiler.core.optional_math import quotient
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.record_model import Record


class CheckResult(Struct, frozen=True):
    """What is assumed, what was seen, and whether they agree; None: that cannot be said."""

    is_ok: bool | None
    expected: str
    seen: str


NO = False


def compare_values(seen: float | None, expected: float, tolerance: float, unit: str) -> CheckResult:
    """A value beside the one that is known; an absent one differs."""
    if seen is None:
        return CheckResult(NO, f"{expected:.2f} {unit}", "absent")
    is_ok = abs(seen - expected) <= tolerance
    return CheckResult(is_ok, f"{expected:.2f} {unit}", f"{seen:.2f} {unit}")


def unknown_result(why: str) -> CheckResult:
    """What cannot be said, and why."""
    return CheckResult(None, "", why)


NO_WITNESS = unknown_result("the batch printed nothing about it")


def reported_record_of(task: ProofTask) -> Record:
    """The record of a task that has a report."""
    assert task.record is not None  # noqa: S101  a check that needs the report has one
    return task.record


def text_to_seconds(text: str | None) -> float | None:
    """A time in seconds since 1970; None for none."""
    moment_ns = parse_ns(text)
    return quotient(moment_ns, NS_PER_SECOND)

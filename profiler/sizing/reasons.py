"""Why a size is recommended, in sentences that a colleague would say. Pure."""

from collections.abc import Iterator

from profiler.rightsizing import SizeDecision
from profiler.sizing.evidence import Evidence
from profiler.sizing.trend import Growth, growth

_FEW_RUNS = 5
_MAX_FINE_PERIOD_MS = 2000
_HIGH_USE_SHARE = 0.9
_LOW_USE_SHARE = 0.5
_SPIKE_SHARE = 0.5
_NS_PER_DAY = 86_400 * 1_000_000_000
_DAYS_PER_MONTH = 365.25 / 12
_MS_PER_HOUR = 3_600_000
_MAX_RUNS_AHEAD = 1000
_MAX_NAMES = 5


def reasons(evidence: Evidence, choice: SizeDecision) -> tuple[str, ...]:
    """The sentences, the most important first; the first tells the runs and how their peaks are known."""
    sentences = (
        *_basis(evidence),
        *_memory(evidence, choice),
        *_cpu(evidence, choice),
        *_limits(choice),
        *_cost(evidence, choice),
        *_trend(evidence, choice),
        *_devices(evidence),
        *_caveats(evidence, choice),
        *evidence.assumptions,
    )
    return tuple(sentences)


def _basis(evidence: Evidence) -> Iterator[str]:
    told = [
        _counted(count, what)
        for count, what in (
            (evidence.failed, "failed"),
            (evidence.stopped, "stopped"),
            (evidence.out_of_memory - evidence.out_of_memory_unmeasured, "out of memory"),
        )
        if count
    ]
    of_them = f" ({', '.join(told)})" if told else ""
    parts = []
    if evidence.required_memory_mb is not None:
        source = f" ({evidence.peak_source})" if evidence.peak_source is not None else ""
        parts.append(f"at most {memory(evidence.required_memory_mb)} of memory{source}")
    if evidence.required_vcpu is not None:
        parts.append(f"for 95 % of the time at most {vcpus(evidence.required_vcpu)}")
    others_mb = (evidence.required_memory_mb or 0) - (evidence.batch_peak_mb or evidence.required_memory_mb or 0)
    beside = f"; {memory(others_mb)} of the memory are the other containers'" if others_mb >= 1 else ""
    died = evidence.out_of_memory_unmeasured
    unmeasured = f"; {died} more ran out of memory before it could be measured" if died else ""
    yield f"{_runs(evidence.runs)}{of_them} used {' and '.join(parts)}{beside}{unmeasured}."


def _memory(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    given_mb = choice.current.memory_mb if choice.current is not None else None
    oom_size_mb, need_mb = evidence.oom_size_mb, evidence.required_memory_mb
    if oom_size_mb is not None:
        yield f"With {memory(oom_size_mb)} a run ran out of memory, so it needs more than that."
    elif given_mb and need_mb is not None and need_mb >= _HIGH_USE_SHARE * given_mb:
        yield f"That is {_share(need_mb, given_mb)} of the task's {memory(given_mb)}: it is bound by its memory."
    elif given_mb and need_mb is not None and need_mb < _LOW_USE_SHARE * given_mb:
        yield f"Only {_share(need_mb, given_mb)} of the task's {memory(given_mb)} was ever used."
    if (evidence.oom_size_mb is not None or choice.changes) and _bounded_below(
        evidence.latest.memory_size_mb, choice.size.memory_mb, given_mb
    ):
        yield (
            f"The container {evidence.latest.container!r} has a limit of its own of "
            f"{memory(evidence.latest.memory_size_mb or 0)}: check that it fits the new size."
        )


def _cpu(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    given = choice.current.vcpu if choice.current is not None else None
    bound, need = evidence.cpu_bound_vcpu, evidence.required_vcpu
    if bound is not None:
        wanted = choice.size.vcpu
        more = f": with {vcpus(wanted)} it may run faster" if wanted is not None and wanted > bound else ""
        yield f"{_runs(evidence.cpu_bound_runs)} used all of {vcpus(bound)} (CPU-bound){more}."
        if _bounded_below(evidence.latest.vcpu_size, choice.size.vcpu, given):
            yield (
                f"The container {evidence.latest.container!r} has a CPU limit of its own of "
                f"{vcpus(evidence.latest.vcpu_size or 0)}: raise that as well."
            )
    elif given and need is not None and need < _LOW_USE_SHARE * given:
        yield f"For 95 % of the time it used at most {_share(need, given)} of the task's {vcpus(given)}."


def _bounded_below(own: float | None, wanted: float | None, given: float | None) -> bool:
    """Whether a container's own limit, not the task's size, is what bounds it."""
    return own is not None and wanted is not None and given is not None and own < given and own != wanted


def _limits(choice: SizeDecision) -> Iterator[str]:
    where, split = "Fargate has for Windows" if choice.is_windows else "Fargate has", ": split the work"
    if choice.is_max_vcpu:
        ending = split if choice.needs_more_vcpu else ""
        yield f"{vcpus(choice.size.vcpu or 0)} is the largest size that {where}{ending}."
    if choice.is_max_memory:
        most = memory(choice.size.memory_mb or 0)
        yield f"{most} is the largest memory that {where}{split if choice.needs_more_memory else ''}."
    if choice.is_vcpu_unchanged:
        yield "Its use of CPU was not measured, so the vCPUs stay as they are."
    if choice.is_memory_unchanged:
        yield "Its use of memory was not measured, so the memory stays as it is."


def _cost(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    saving = choice.saving_percent
    if saving is None or choice.current_hour_usd is None or choice.hour_usd is None or not choice.changes:
        if choice.is_fargate and _is_right(choice):
            yield "The present size is right."
        return
    verb = "saves" if saving >= 0 else "costs"
    more = "" if saving >= 0 else " more"
    if evidence.mean_billed_ms is None:
        yield f"The new size {verb} {abs(saving):g} %{more} at the same duration."
        return
    per_run = abs(choice.current_hour_usd - choice.hour_usd) * evidence.mean_billed_ms / _MS_PER_HOUR
    per_month = runs_per_month(evidence)
    monthly = f", about {dollars(per_run * per_month)} a month at {per_month:.0f} runs" if per_month is not None else ""
    yield f"The new size {verb} {abs(saving):g} %{more}: {dollars(per_run)} a run{monthly}, at the same duration."


def _is_right(choice: SizeDecision) -> bool:
    wants_more = choice.needs_more_vcpu or choice.needs_more_memory
    return choice.current is not None and not choice.changes and not wants_more


def runs_per_month(evidence: Evidence) -> float | None:
    """How often the family runs, as far as its last runs tell; None for a single one, or for many at once."""
    steps = evidence.window_runs - 1
    if steps < _FEW_RUNS - 1 or evidence.window_ns < _NS_PER_DAY:
        return None
    return steps / (evidence.window_ns / _NS_PER_DAY) * _DAYS_PER_MONTH


def _trend(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    grows = growth(evidence.peaks_mb)
    if grows is not None:
        known_mb = {limit for limit in (choice.size.memory_mb, evidence.latest.memory_size_mb) if limit is not None}
        ends = [text for limit_mb in sorted(known_mb) if (text := _passing(grows, limit_mb)) is not None]
        passes = f": it will pass {' and '.join(ends)}" if ends else ""
        yield f"Its peak grows by about {memory(grows.per_run)} a run{passes}."
    spike = evidence.spike
    if spike is not None and spike.p99_mb < _SPIKE_SHARE * spike.peak_mb:
        yield (
            f"It is spiky: {memory(spike.peak_mb)} were held for less than 1 % of the time, "
            f"and {memory(spike.p99_mb)} were enough for the rest."
        )


def _passing(grows: Growth, limit_mb: float) -> str | None:
    runs = grows.runs_until(limit_mb)
    if runs is None or runs > _MAX_RUNS_AHEAD:
        return None
    return f"the limit of {memory(limit_mb)} in about {_runs(runs)}"


def _devices(evidence: Evidence) -> Iterator[str]:
    if evidence.gpus_idle and evidence.runs > 1:  # on its own record a single run says it of each GPU
        yield "Its GPUs were allocated and never used in any run: run the task without, or see why it finds none."


def _caveats(evidence: Evidence, choice: SizeDecision) -> Iterator[str]:
    if evidence.runs < _FEW_RUNS:
        yield (
            f"{'One run is' if evidence.runs == 1 else f'{evidence.runs} runs are'} few: "
            "look again when there are more, with other input."
        )
    if evidence.stopped and evidence.runs == evidence.stopped:
        yield "No run came to its end, so it may need more."
    if evidence.peak_source == "sampled" and (evidence.stats_period_ms or 0) > _MAX_FINE_PERIOD_MS:
        period_s = (evidence.stats_period_ms or 0) / 1000
        yield f"The statistics moved only every {period_s:.0f} s: a shorter peak was not seen."
    if evidence.latest.unbounded:
        names = evidence.latest.unbounded
        listed = ", ".join(repr(name) for name in names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
        yield f"Not all that {listed} used is known, and there is no limit to go by: that counts for nothing here."
    if not choice.is_fargate:
        yield "This is the need rounded up: outside of Fargate a size has no price of its own."


def memory(size_mb: float) -> str:
    """``512 MB``; a fraction only below 10."""
    return f"{size_mb:.0f} MB" if size_mb >= 10 or float(size_mb).is_integer() else f"{size_mb:.1f} MB"  # noqa: PLR2004


def vcpus(count: float) -> str:
    """``0.25 vCPU``, with two digits at most."""
    return f"{round(count, 2):g} vCPU"


def dollars(usd: float) -> str:
    """Small sums with two digits that say something."""
    return f"${usd:.2f}" if usd >= 1 or not usd else f"${usd:.2g}" if usd >= 1e-4 else f"${usd:.1e}"  # noqa: PLR2004


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}"

"""Two sets of past runs, each selected by a text.

``NAME``, ``NAME@REVISION`` or ``NAME@LABEL=VALUE`` are the newest successes of a family; else it is
ids of runs of any status, joined by commas.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.text import first_names
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.record_model import Cost, Record, Report, known_status, without_course
from profiler.record.units import format_count
from profiler.runs.comparison.compared_metrics import is_measured
from profiler.runs.past_runs.families import final_report
from profiler.runs.past_runs.run_source import (
    PastRun,
    RunFilter,
    RunSource,
    find_run,
    pattern_of,
    run_key,
    with_task_cost,
)


class RunSet(Struct, frozen=True, kw_only=True):
    """Runs, the text that selects them, and how many do not count, by reason.

    ``has_more``: older ones would.
    """

    text: str
    reports: tuple[Report, ...]
    left_out: tuple[tuple[str, int], ...] = ()
    has_more: bool = False

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(report.record for report in self.reports)

    @property
    def left_out_text(self) -> str:
        """The runs that were left out, such as ``2 failed, 1 unfinished``; empty without any."""
        older = [f"all but the newest {len(self.reports)}"] if self.has_more else []
        return ", ".join([f"{count} {reason}" for reason, count in self.left_out] + older)


def read_run_sets(
    source: RunSource,
    texts: tuple[str, str],
    selection: RunFilter,
    last: int,
    container: str | None = None,
) -> tuple[tuple[RunSet, RunSet], Sequence[str]]:
    """Read both sets, of one container, and remarks.

    Raises TaskProfilerError (no run), UsageError (not one set).
    """
    if texts[0] == texts[1]:
        raise UsageError(f"A and B are both {texts[0]}: name two sets of runs.")
    families = [_FamilyRuns(text, last, container) for text in texts]
    patterns = tuple(sorted({pattern_of(runs.name) for runs in families}))
    for run in source.runs(
        replace(selection, families=patterns)
    ):  # the runs of both families are read once
        for runs in families:
            runs.add(run)
        if all(runs.is_full for runs in families):
            break
    _check_one_place([runs for runs in families if runs.found])
    a, b = (
        runs.as_set(source) if runs.found else _set_of_ids(source, runs, selection, container)
        for runs in families
    )
    keys_a, keys_b = ({run_key(report) for report in one.reports} for one in (a, b))
    if keys_a == keys_b:
        raise UsageError(
            f"{a.text} and {b.text} are the same {format_count(len(keys_a), 'run')}: name two sets."
        )
    common = len(keys_a & keys_b)
    are = f"{format_count(common, 'run')} {'is' if common == 1 else 'are'}"
    remark = f"{are} in both sets, which makes a difference look smaller than it is."
    return (a, b), (remark,) if common else ()


class _FamilyRuns:
    """Collects the newest runs of a family, or its runs with one revision or label, the
    ``suffix``.
    """

    def __init__(self, text: str, last: int, container: str | None) -> None:
        self.text = text
        self.name, _, self.suffix = text.partition("@")
        self.others: dict[str, None] = {}  # what the family's other runs have, the newest first
        self.found: dict[tuple[str, str, str], FamilyKey] = {}
        self.is_full = False
        self._last = last
        self._container = container
        self._reports: list[Report] = []
        self._left_out: Counter[str] = Counter()
        self._costs: dict[str, Cost] = {}  # keyed by the task's id

    def add(self, run: PastRun) -> None:
        record = run.report.record
        key = run_key(run.report)
        family = family_key(run.report.record)
        if self.is_full or family.name != self.name or key in self.found:
            return
        if record.cost is not None:
            self._costs[record.task_id] = record.cost
        if self._container not in (None, record.container.name):
            self.others[f"container {record.container.name}"] = None
            return
        labels = (f"{name}={value}" for name, value in (record.labels or {}).items())
        names = [*([record.revision] if record.revision else ()), *labels]
        if self.suffix and self.suffix not in names:
            self.others.update(dict.fromkeys(names))
            return
        report, reason = _counted(run)
        if report is not None and len(self._reports) == self._last:
            self.is_full = True
            return
        self.found[key] = family
        if report is not None:
            self._reports.append(replace(report, record=without_course(report.record)))
        else:
            self._left_out[reason] += 1

    def as_set(self, source: RunSource) -> RunSet:
        """The set.

        Raises TaskProfilerError if no run counts, UsageError for runs of several containers.
        """
        text = self.text
        left_out = tuple(sorted(self._left_out.items()))
        reports = tuple(with_task_cost(report, self._costs) for report in self._reports)
        found = RunSet(text=text, reports=reports, left_out=left_out, has_more=self.is_full)
        if not self._reports:
            raise TaskProfilerError(
                f"{text} has no successful run in {source.place} ({found.left_out_text}): give "
                "run ids to compare runs with any result."
            )
        containers = sorted({record.container.name for record in found.records})
        if len(containers) > 1:
            names = first_names(containers)
            raise UsageError(
                f"{text} has runs of {len(containers)} containers ({names}): choose one with "
                "--container."
            )
        return found


def _counted(run: PastRun) -> tuple[Report | None, str]:
    """The report of a run that counts in a family's set, else the reason why it does not."""
    report = final_report(run)
    status = known_status(run.report.record)
    if report is None or status == "running":
        return None, "unfinished"
    if status != "success":
        return None, {"failure": "failed", "stopped": "stopped"}.get(
            status, "with an unknown result"
        )
    return (report, "") if is_measured(report.record) else (None, "not measured")


def _check_one_place(found: Sequence[_FamilyRuns]) -> None:
    for name in dict.fromkeys(runs.name for runs in found):
        families = {family for runs in found if runs.name == name for family in runs.found.values()}
        places = (
            ("accounts", "--account", {family.account_id or "unknown" for family in families}),
            ("Regions", "--task-region", {family.region or "unknown" for family in families}),
        )
        several = [
            (f"{kind} ({first_names(sorted(seen))})", option)
            for kind, option, seen in places
            if len(seen) > 1
        ]
        if several:
            raise UsageError(
                f"{name} is a family in several {' and '.join(text for text, _ in several)}: "
                f"choose one with {' and '.join(option for _, option in several)}, or name runs "
                "by their ids."
            )


def _set_of_ids(
    source: RunSource, runs: _FamilyRuns, selection: RunFilter, container: str | None
) -> RunSet:
    """The set of the runs whose ids, or the beginnings of them, are in the text."""
    if runs.others:
        its = first_names([*runs.others])
        raise TaskProfilerError(
            f"No run of {runs.name} in {source.place} is in {runs.text}: its runs have {its}."
        )
    reports: dict[tuple[str, str, str], Report] = {}
    for part in map(str.strip, runs.text.split(",")):
        if not part:
            raise UsageError(
                f"{runs.text!r} has an empty run id: name a family, or run ids joined by commas."
            )
        run = find_run(source, replace(selection, run=part, reads_checkpoints=True), container)
        record = run.report.record
        if not f"{record.task_id}/{record.container.name}".startswith(part):
            raise UsageError(
                f"{part} is not the id of a run: name one family, or run ids joined by commas."
            )
        report = final_report(run)
        if report is None:
            raise TaskProfilerError(
                f"The run {record.task_id} has no report yet: compare it when it has ended."
            )
        reports[run_key(report)] = replace(report, record=without_course(report.record))
    return RunSet(text=runs.text, reports=tuple(reports.values()))

"""Two sets of past runs, each selected by a text.

``NAME``, ``NAME@REVISION`` or ``NAME@LABEL=VALUE`` are the newest successes of a family; else it is
ids of runs of any status, joined by commas.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.text import did_you_mean, first_names, listed
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.record_model import UNKNOWN_COST, Cost, Record, Report, without_large_parts
from profiler.record.run_labels import label_values
from profiler.record.units import format_count
from profiler.runs.comparison.compared_metrics import is_measured
from profiler.runs.past_runs.family_evidence import final_report
from profiler.runs.past_runs.past_run import PastRun, RunKey, run_key
from profiler.runs.past_runs.run_lookup import find_run, with_task_cost
from profiler.runs.past_runs.run_source import RunFilter, RunSource, exact_patterns_of


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
    def run_keys(self) -> frozenset[RunKey]:
        return frozenset(run_key(report) for report in self.reports)

    @property
    def left_out_text(self) -> str:
        """The runs that were left out, such as ``2 failed, 1 unfinished``; empty without any."""
        parts = [f"{count} {reason}" for reason, count in self.left_out]
        if self.has_more:
            parts.append(f"all but the newest {len(self.reports)}")
        return ", ".join(parts)


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
    both = [_FamilyRuns(text, last, container) for text in texts]
    patterns = exact_patterns_of(family_runs.name for family_runs in both)
    # The runs of both families are read once.
    for run in source.runs(replace(selection, families=patterns, only_counting=True)):
        for family_runs in both:
            family_runs.add_run(run)
        if all(family_runs.is_full for family_runs in both):
            break
    _check_same_account_and_region(both)
    sets: list[RunSet] = []
    for family_runs in both:
        if family_runs.families:
            sets.append(family_runs.run_set(source))
        else:
            sets.append(_set_of_ids(source, family_runs, selection, container))
    a, b = sets
    if a.run_keys == b.run_keys:
        raise UsageError(
            f"{a.text} and {b.text} are the same {format_count(len(a.run_keys), 'run')}: name "
            f"two sets."
        )
    remarks: list[str] = []
    common = len(a.run_keys & b.run_keys)
    if common:
        verb = "is" if common == 1 else "are"
        remarks.append(
            f"{format_count(common, 'run')} {verb} in both sets, which makes a difference look "
            "smaller than it is."
        )
    return (a, b), remarks


class _FamilyRuns:
    """Collects the newest runs of a family, or its runs with one revision or label, the
    ``suffix``.
    """

    def __init__(self, text: str, last: int, container: str | None) -> None:
        self.text = text
        self.name, at, self.suffix = text.partition("@")
        if self.name and at and not self.suffix:
            raise UsageError(
                f"'{text}' has nothing after the @: write {self.name}, {self.name}@REVISION or "
                f"{self.name}@LABEL=VALUE."
            )
        self.is_known = False  # whether there are runs of the family
        # The containers of its runs that were asked for another one, and the revisions and labels
        # of its other runs, the newest first.
        self.other_containers: dict[str, None] = {}
        self.others: dict[str, None] = {}
        self.families: dict[RunKey, FamilyKey] = {}  # of the runs that were judged
        self.is_full = False
        self._last = last
        self._container = container
        self._reports: list[Report] = []
        self._left_out: Counter[str] = Counter()
        self._costs: dict[str, Cost] = {}  # keyed by the task's id

    def add_run(self, run: PastRun) -> None:
        record = run.record
        key = run_key(run.report)
        family = family_key(record)
        if self.is_full or family.name != self.name or key in self.families:
            return
        self.is_known = True
        if record.cost != UNKNOWN_COST:
            self._costs[record.task_id] = record.cost
        if self._container not in (None, record.container.name):
            self.other_containers[str(record.container.name)] = None
            return
        suffixes = _selecting_suffixes(record)
        if self.suffix and self.suffix not in suffixes:
            self.others.update(dict.fromkeys(suffixes))
            return
        report, reason = _counting_report(run)
        if report is None:
            self._left_out[reason] += 1
        elif len(self._reports) == self._last:
            self.is_full = True
            return
        else:
            self._reports.append(replace(report, record=without_large_parts(report.record)))
        self.families[key] = family

    def run_set(self, source: RunSource) -> RunSet:
        """The set.

        Raises TaskProfilerError if no run counts, UsageError for runs of several containers.
        """
        text = self.text
        run_set = RunSet(
            text=text,
            reports=tuple(with_task_cost(report, self._costs) for report in self._reports),
            left_out=tuple(sorted(self._left_out.items())),
            has_more=self.is_full,
        )
        if not run_set.reports:
            raise TaskProfilerError(
                f"{text} has no successful run in {source.place} ({run_set.left_out_text}): give "
                "run ids to compare runs with any result."
            )
        containers = sorted({record.container.name for record in run_set.records})
        if len(containers) > 1:
            names = first_names(containers)
            raise UsageError(
                f"{text} has runs of {len(containers)} containers ({names}): choose one with "
                "--container."
            )
        return run_set


def _selecting_suffixes(record: Record) -> list[str]:
    """What can follow ``NAME@`` to select the run: its revision, its labels and its job."""
    suffixes = [f"{name}={value}" for name, value in label_values(record).items()]
    if record.revision:
        suffixes.insert(0, record.revision)
    return suffixes


def _counting_report(run: PastRun) -> tuple[Report | None, str]:
    """The report of a run that counts in a family's set, else the reason why it does not."""
    report = final_report(run)
    status = run.outcome.status
    if report is None or status == "running":
        return None, "unfinished"
    if status == "failure":
        return None, "failed"
    if status == "stopped":
        return None, "stopped"
    if status != "success":
        return None, "with an unknown result"
    if not is_measured(report.record):
        return None, "not measured"
    return report, ""


def _check_same_account_and_region(both: Sequence[_FamilyRuns]) -> None:
    """Raise UsageError if the runs of one name are of several accounts or Regions."""
    families_of_name: dict[str, set[FamilyKey]] = {}
    for family_runs in both:
        families_of_name.setdefault(family_runs.name, set()).update(family_runs.families.values())
    for name, families in families_of_name.items():
        accounts = sorted({family.account_id or "unknown" for family in families})
        regions = sorted({family.region or "unknown" for family in families})
        places: list[str] = []
        options: list[str] = []
        if len(accounts) > 1:
            places.append(f"accounts ({first_names(accounts)})")
            options.append("--account")
        if len(regions) > 1:
            places.append(f"Regions ({first_names(regions)})")
            options.append("--task-region")
        if places:
            raise UsageError(
                f"{name} is a family in several {listed(places)}: choose one with "
                f"{listed(options)}, or name runs by their ids."
            )


def _why_no_run_is_selected(family_runs: _FamilyRuns, place: str, container: str | None) -> str:
    """Why none of the runs of a family is in the set, and what to write."""
    name = family_runs.name
    others = first_names([*family_runs.other_containers])
    if others:
        return f"No run of {name} in {place} is of container {container}: they are of {others}."
    suffixes = [*family_runs.others]
    meant = did_you_mean([family_runs.suffix], suffixes)
    known = first_names(suffixes) or "neither revisions nor labels"
    return f"No run of {name} in {place} is in {family_runs.text}: its runs have {known}.{meant}"


def _set_of_ids(
    source: RunSource, family_runs: _FamilyRuns, selection: RunFilter, container: str | None
) -> RunSet:
    """The set of the runs whose ids, or the beginnings of them, are in the text."""
    text = family_runs.text
    if family_runs.is_known:
        raise TaskProfilerError(_why_no_run_is_selected(family_runs, source.place, container))
    reports: dict[RunKey, Report] = {}
    for run_id in map(str.strip, text.split(",")):
        if not run_id:
            raise UsageError(
                f"{text!r} has an empty run id: name a family, or run ids joined by commas."
            )
        run = find_run(source, replace(selection, run=run_id, reads_checkpoints=True), container)
        record = run.record
        if not f"{record.task_id}/{record.container.name}".startswith(run_id):
            raise UsageError(
                f"{run_id} is not the id of a run: name one family, or run ids joined by commas."
            )
        report = final_report(run)
        if report is None:
            raise TaskProfilerError(
                f"The run {record.task_id} has no report yet: compare it when it has ended."
            )
        reports[run_key(report)] = replace(report, record=without_large_parts(report.record))
    return RunSet(text=text, reports=tuple(reports.values()))

"""What `run` asks the local history of its command's family: the size that is recommended, the
successes to compare with, the usual duration and the highest peak.
"""

import os
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profiler.cli.chosen_run_options import RunOptions
from profiler.core.clock import Clock
from profiler.local_run.prepared_run import family_name
from profiler.readers.linux.interpreters import is_interpreter
from profiler.record.record_model import Recommendation, Record, Report, known_status

if TYPE_CHECKING:
    from profiler.record.family_statistics import Family, HighestPeak, UsualDuration
    from profiler.runs.history.run_database import HistoryStore
    from profiler.sizing.prices import PriceOverrides

_MAX_RUNS_COMPARED = 50


def _have_runs_one_program(options: RunOptions) -> bool:
    """Whether all runs of the family ran the same program: ``python3 -c`` without a name runs
    any program.
    """
    words = options.words
    if options.name is not None or not is_interpreter(words[0].rpartition("/")[2]):
        return True
    from profiler.readers.linux.script_names import name_of_code  # only for an interpreter

    return name_of_code(words) is not None


def report_and_comparable_records(
    report: Report, prices: "PriceOverrides | None", options: RunOptions, store: "HistoryStore"
) -> tuple[Report, tuple[Record, ...]]:
    """The report with the size for its family, and the successes of the family that it can be
    compared with.
    """
    # The end of the run has imported them.
    from profiler.cli.terminal.next_step import may_name_size
    from profiler.record.stop_causes import outcome_of
    from profiler.record.unusual import is_long_enough_to_compare

    record = report.record
    if may_name_size(record, outcome_of(record)):
        report = with_family_size(report, store, prices)
    if not _have_runs_one_program(options):
        return report, ()
    earlier = record.family or "", record.started_at or ""
    if known_status(record) == "success":
        last = store.last_metrics(*earlier)
        if last is not None and not is_long_enough_to_compare(record.metrics, last):
            return report, ()
    successes = islice(store.last_successes(*earlier), _MAX_RUNS_COMPARED)
    return report, tuple(success.record for success in successes)


def with_family_size(
    report: Report, store: "HistoryStore", prices: "PriceOverrides | None"
) -> Report:
    """The report with the size that ``recommend`` will give for the family."""
    from profiler.runs.past_runs.family_advice import (
        find_advice,  # slow to import, as the next ones
    )
    from profiler.runs.past_runs.local_history import LocalRuns
    from profiler.runs.past_runs.past_run import PastRun
    from profiler.sizing.prices import PriceOverrides

    advice = find_advice(PastRun(report=report), LocalRuns(store), prices or PriceOverrides())
    if advice is None:
        return report
    recommendation = Recommendation(
        vcpu=advice.choice.size.vcpu, memory_mb=advice.choice.size.memory_mb
    )
    return replace(report, record=replace(report.record, recommendation=recommendation))


def usual_duration_of(options: RunOptions, clock: Clock) -> "UsualDuration | None":
    """How long the last successes of the family in the local history took; None if that is not
    known.
    """
    family = known_family_of(options, clock)
    return None if family is None else family.usual_duration()


def highest_peak_of(options: RunOptions, clock: Clock) -> "HighestPeak | None":
    """What the last successes of the family in the local history reached."""
    family = known_family_of(options, clock)
    return None if family is None else family.highest_peak()


def known_family_of(options: RunOptions, clock: Clock) -> "Family | None":
    """The last successes of the family in the local history; None if they are not known."""
    try:
        from profiler.record.family_statistics import LAST_SUCCESSES, family_of_reports
        from profiler.runs.history.history_file import history_path
        from profiler.runs.history.run_database import HistoryStore

        if not _have_runs_one_program(options):
            return None
        store = HistoryStore(history_path(os.environ), clock)
        successes = store.last_successes(family_name(options.name, options.words), "~")
        return family_of_reports(islice(successes, LAST_SUCCESSES))
    # Whatever is wrong with the history: the end of the run reports it.
    except Exception:  # noqa: BLE001
        return None

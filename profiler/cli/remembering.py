"""What ``run`` does with the history: collect the series meanwhile, add the run in the end.

sqlite3 is imported in the end only: it would make every command start later.
"""

from collections.abc import Mapping

from profiler.cli.history_settings import history_path, runs_to_keep
from profiler.clock import Clock
from profiler.errors import TaskProfilerError
from profiler.local.timeline import Timeline
from profiler.record import Report
from profiler.times import parse_ns


class HistoryRecorder:
    """The history as one run sees it. ``timeline.add`` listens to the samples."""

    def __init__(self, option: str | None, environment: Mapping[str, str], clock: Clock) -> None:
        self._option = option
        self._environment = environment
        self._clock = clock
        self.timeline = Timeline()

    def add(self, line: bytes, report: Report) -> tuple[str, ...]:
        """Add the run. Trouble costs nothing but the entry and is answered in sentences."""
        max_runs, complaint = runs_to_keep(self._environment)
        trouble = self._add_to_history(line, report, max_runs) if max_runs else None
        missing = None if trouble is None else f"This run is not in the history. {trouble}"
        return tuple(sentence for sentence in (complaint, missing) if sentence is not None)

    def _add_to_history(self, line: bytes, report: Report, max_runs: int) -> str | None:
        try:
            path = history_path(self._option, self._environment)
            from profiler.sinks.history import HistoryStore  # noqa: PLC0415  see the module's docstring
        except TaskProfilerError as error:
            return str(error)
        except ImportError as error:
            return f"This Python comes without SQLite ({error}): use --no-history, or another Python."
        started_ns = parse_ns(report.record.started_at)
        points = () if started_ns is None else self.timeline.points(started_ns)
        refused = HistoryStore(path, self._clock).add(line, points, max_runs=max_runs)
        return None if refused is None else refused.reason

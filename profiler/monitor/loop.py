"""The main loop of the monitor: at each tick a step of each task, until all have their reports or a stop request."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiler.monitor.monitored_task import MonitoredTask
from profiler.monitor.shared_parts import SharedParts

if TYPE_CHECKING:
    from profiler.monitor.prometheus.exporter import PrometheusExporter


class MonitorLoop:
    """Samples and reports the tasks. :meth:`run` is called once."""

    def __init__(
        self, tasks: Sequence[MonitoredTask], shared: SharedParts, exporter: "PrometheusExporter | None" = None
    ) -> None:
        self._running = [*tasks]
        self._shared = shared
        self._exporter = exporter

    def run(self) -> None:
        """Sample until every batch has its report, or a stop request was handled. A defect ends the sampling early.

        No defect is raised: an orchestrator may take a monitor that fails for a batch that fails.
        """
        shared = self._shared
        try:
            self._run_tasks()
        except Exception as error:  # noqa: BLE001  the last handler: a defect must not lose the runs
            for task in self._running:
                task.fail(error)
        shared.attempt(shared.delivery.finish)  # also the reports that were on their way before a defect
        if self._exporter is not None:
            shared.attempt(self._exporter.close)
        shared.attempt(shared.collectors.stop)

    def _run_tasks(self) -> None:
        shared, exporter = self._shared, self._exporter
        for task in self._running:
            task.start()
        shared.collectors.start()
        problem = None if exporter is None else exporter.start()
        for task in self._running:
            task.add_warning(problem)
        while self._running:
            self._running = [task for task in self._running if not task.step()]
            if exporter is not None:
                exporter.publish()
            if self._running and shared.stop.wait(shared.ticker.seconds_to_next(shared.clock.monotonic_ns())):
                self._finish()

    def _finish(self) -> None:
        """End all tasks after a stop request. They wait at the same time."""
        ends = [task.finish() for task in self._running]
        self._running = []  # each handles its own defects
        while ends:
            waiting = [(end, seconds) for end in ends if (seconds := next(end, None)) is not None]
            if waiting:
                self._shared.clock.sleep(min(seconds for _, seconds in waiting))
            ends = [end for end, _ in waiting]

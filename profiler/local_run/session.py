"""Runs a prepared command to its end: samples it, looks for notices, and reports it.

Writes to no standard stream.
"""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from profiler.collectors.collector import COMMAND
from profiler.core.clock import ClockJumpDetector
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_SECOND
from profiler.local_run.command_supervisor import CommandExit, Supervisor, become_subreaper
from profiler.local_run.command_usage import UnrelatedChildren
from profiler.local_run.local_notices import LocalNotices, network_of
from profiler.local_run.local_record import RunIdentity, read_limits
from profiler.local_run.prepared_run import PreparedRun, StartedRun, StartFailure, family_name
from profiler.local_run.report_builder import ReportBuilder, not_started_result
from profiler.local_run.run_plan import RunPlan, RunResult
from profiler.local_run.sampler import RunSampler
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.host import read_busy_ns, read_host, with_processor

# A command that ends sooner writes no file.
_FIRST_WRITE_NS = NS_PER_SECOND // 10
# The user waits for imports neither at the start nor at the end. While they last, the end is not
# seen, so a command that is shorter has ended before.
_IMPORTS_AFTER_NS = NS_PER_SECOND // 200


def run_to_end(prepared: PreparedRun, plan: RunPlan) -> RunResult:
    """Run the prepared command to its end."""
    become_subreaper()
    started = prepared.execute()
    identity = RunIdentity(
        task_id=prepared.run_id,
        family=family_name(plan.name, prepared.held.words),
        is_named=plan.name is not None,
        labels={name: without_surrogates(value) for name, value in plan.labels.items()},
        batch=plan.surroundings.find_batch_job(),
        host=read_host(),
    )
    if isinstance(started, StartFailure):
        request = plan.surroundings.request_placement()
        return not_started_result(prepared, identity, request, started)
    return _Session(prepared, started, identity, plan).run_to_end()


class _Session:
    """One run, from the start of its command to the report."""

    def __init__(
        self, prepared: PreparedRun, started: StartedRun, identity: RunIdentity, plan: RunPlan
    ) -> None:
        self._clock = prepared.clock
        self._started = started
        self._plan = plan
        self._around = plan.surroundings
        interval_ns = round(plan.interval_seconds * NS_PER_SECOND)
        self._first_write_ns = started.started_ns + min(_FIRST_WRITE_NS, interval_ns // 2)
        request = self._around.request_placement()
        labels = {**self._around.find_labels(), **identity.labels}
        identity = replace(identity, labels=labels, host=with_processor(identity.host))
        self._sizes = read_limits(prepared.cgroups, identity.host)
        unrelated_children = UnrelatedChildren(prepared.preexisting_children, plan.collectors)
        self._supervisor = Supervisor(
            started.pid, self._clock, unrelated_children, self._around.before_stop
        )
        self._sampler = RunSampler(prepared, started, plan, unrelated_children, self._sizes.vcpu)
        self._notices = LocalNotices(
            started.started_wall_ns,
            interval_ns,
            partial(network_of, started.pid),
            stuck_minutes=plan.stuck_minutes,
            expected_seconds=plan.expected_seconds,
            request_earlier_peak=self._around.request_earlier_peak,
        )
        offset_ns = started.started_wall_ns - started.started_ns
        self._clock_jumps = ClockJumpDetector(self._clock, offset_ns)
        self._reports = ReportBuilder(
            identity,
            self._sampler,
            self._notices,
            request,
            self._sizes,
            read_busy_ns(),
            self._clock_jumps,
        )
        self._has_shown = False
        self._has_imported = False

    def run_to_end(self) -> RunResult:
        """Sample until the command has ended, then collect the totals and build the report.

        The command goes on, and its exit code counts, whatever fails here.
        """
        failure = _error_of_action(self._sample_until_exit)
        if failure:
            self._supervisor.wait()
        finished_ns = self._clock.monotonic_ns()
        finished_wall_ns = self._clock.wall_ns()
        if not failure:
            failure = _error_of_action(partial(self._read_ended, finished_ns))
        ending = self._supervisor.reap_all()
        if not self._has_imported:
            _error_of_action(self._import_for_end)  # the end imports it again, and says why not
        duration_ns = finished_ns - self._started.started_ns
        if not failure:
            try:
                return self._result(ending, finished_ns, finished_wall_ns)
            except Exception as error:  # noqa: BLE001  the record names it
                failure = _error_text(error)
        return self._reports.unprofiled_result(ending, finished_wall_ns, duration_ns, failure)

    def _sample_until_exit(self) -> None:
        with self._sampler.left_out():
            for collector in self._plan.collectors.threads:
                collector.start()
        if self._supervisor.wait_until_exit(self._started.started_ns + _IMPORTS_AFTER_NS):
            return
        with self._sampler.left_out():
            self._import_for_end()
        while not self._supervisor.wait_until_exit(self._sampler.next_ns()):
            now_ns = self._clock.monotonic_ns()
            self._read(now_ns)
            if now_ns >= self._first_write_ns:
                self._around.keep_so_far(self._reports.so_far)

    def _import_for_end(self) -> None:
        self._around.import_for_end()
        self._has_imported = True

    def _read(self, now_ns: int) -> None:
        """Take the look and the reading that are due, and pass the reading on."""
        self._sampler.look_if_due(now_ns, self._supervisor.stops)
        if not self._sampler.is_due(now_ns):
            return
        reading = self._sampler.pace.begin_reading(now_ns)
        if reading == "quick":
            self._sampler.read_quickly(now_ns)
            return
        is_tick = reading == "tick"
        sample = self._sampler.read_everything(self._supervisor.reaped, is_tick=is_tick)
        if sample is None:
            return
        if is_tick:
            for follower in self._plan.collectors.sample_followers:
                follower.on_sample(COMMAND, sample, self._sizes)
            if self._sampler.details is not None:
                self._plan.collectors.pass_waits_on(
                    COMMAND, self._sampler.details.time.held_back_ns
                )
            self._look_for_notices(sample)
        if self._has_shown:
            self._around.on_sample(sample, self._sampler.command.processes)
        else:
            with self._sampler.left_out():  # it imports the view
                self._around.on_sample(sample, self._sampler.command.processes)
            self._has_shown = True

    def _look_for_notices(self, sample: ContainerSample) -> None:
        details = self._sampler.details
        if details is not None:
            self._notices.add_sample(
                sample,
                self._sizes.memory_bytes,
                self._reports.record_so_far,
                details.time.longest_wait,
                self._around.on_notice,
            )

    def _read_ended(self, finished_ns: int) -> None:
        """Read what the ended command has left until it is reaped."""
        self._clock_jumps.check()
        self._sampler.read_ended(finished_ns, self._supervisor.reaped)

    def _result(self, ending: CommandExit, finished_ns: int, finished_wall_ns: int) -> RunResult:
        """The result of the reaped command."""
        self._sampler.add_final_counters(finished_ns, ending.reaped)
        duration_ns = finished_ns - self._started.started_ns
        observation = self._reports.observe_run(ending, finished_wall_ns, duration_ns)
        self._plan.collectors.final_readings()
        self._sampler.add_devices(finished_ns)
        return self._reports.run_result(observation, ending)


def _error_of_action(action: Callable[[], None]) -> str:
    """The error of an action; empty without one."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  the record names it
        return _error_text(error)
    return ""


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")

"""Handles one stopped task: determines the outcome, completes the run's document, and posts a
notice.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import MONITOR_NAME, LogTarget
from profiler.core.notice_channels import ChannelKind
from profiler.core.optional_math import known, known_values
from profiler.forwarder.batch_report import (
    ReportFinder,
    ReportLine,
    TaskContainers,
    docker_labels,
    identify_containers,
    judge,
)
from profiler.forwarder.event_document import event_documents
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings, Subject
from profiler.forwarder.invocation import (
    DeliveryError,
    ForwarderError,
    InProgressError,
    attempt,
    raise_errors,
)
from profiler.forwarder.kill_after_resize import reduced_memory, resized_from
from profiler.forwarder.notifications.event_details import ended_line
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.notifications.notification import (
    Comparison,
    EndedTask,
    MemoryRetry,
    NoticeChannel,
    notification_key,
    notify,
)
from profiler.forwarder.search_cluster.document_delivery import DeliverDocuments
from profiler.record.run_outcome import Status
from profiler.record.stopped_task import EventContainer, StoppedTask

_Errors = list[ForwarderError]
# Starts a run again that was killed for memory: (its end, its task definition). Raises
# ForwarderError.
StartAgain = Callable[[EndedTask, Mapping[str, object] | None], MemoryRetry | None]


class Index(Struct, frozen=True, kw_only=True):
    """The search cluster.

    ``find`` returns a batch's report, ``compare`` a comparison with its family, or None.
    """

    settings: ForwarderSettings
    deliver: DeliverDocuments
    find: Callable[[StoppedTask, EventContainer], ReportLine | None]
    compare: Callable[[EndedTask], Comparison | None]


class TaskStoppedResult(Struct, frozen=True, kw_only=True):
    """The status of the task, whether its document was written, and the kind of the notice that
    every channel has.
    """

    status: Status | None = None
    indexed: bool = False
    notified: ChannelKind | None = None


class TaskStoppedHandler(Struct, frozen=True):
    """Handles stopped tasks. ``settings`` and ``index`` may raise SettingsError."""

    settings: Callable[[], NoticeSettings]
    # By ARN; None if it does not exist or may not be read.
    describe: Callable[[str], Mapping[str, object] | None]
    run_log: Callable[[StoppedTask, str | None], ReportFinder]
    index: Callable[[], Index | None]
    channels: Callable[[NoticeSettings], Sequence[NoticeChannel]]
    print_line: Callable[[str], None]  # into the function's log, the list of all ended runs
    once: Idempotently = lambda _key, work: work()
    # A monitor of its instance reports the task.
    is_on_instance: Callable[[StoppedTask], bool] = lambda _task: False
    # After everything else; raises nothing.
    export: Callable[[EndedTask], None] = lambda _ended: None
    warn: Callable[[str], None] = lambda _sentence: None

    def handle(self, task: StoppedTask, start_again: StartAgain | None = None) -> TaskStoppedResult:
        """Start a killed run again, write the document, post the notice.

        Raises ForwarderError after all were tried.
        """
        errors: _Errors = []
        settings = attempt(self.settings, errors)
        wanted = settings or NoticeSettings()
        definition = known(self.describe, task.definition_arn)
        ended, containers = self._judged(task, definition)
        index = attempt(self.index, errors)
        run_log = self.run_log(task, ended.container)
        find_indexed = _indexed_report(index, ended)
        ended = self._with_report(ended, containers, run_log, wanted, find_indexed)
        if start_again is not None:
            ended = replace(ended, retry=_retry(ended.confirmed, definition, start_again, errors))
        indexed = index is not None and self._index(index, ended, errors)
        ended = ended.confirmed
        ended = replace(ended, reduced_memory=reduced_memory(ended, definition))
        ended = replace(ended, report_line=_priced(ended, containers, run_log))
        notice = ended
        notified: ChannelKind | None = None
        if settings is not None:
            notice = self._with_details(ended, settings, index, run_log)
            if should_notify(notice, settings):
                notified = self._notify(notice, settings, errors)
        status = ended.outcome.status
        result = TaskStoppedResult(status=status, indexed=indexed, notified=notified)
        self._print(notice, result, wanted.kibana_url, errors)
        self.export(ended)
        raise_errors(errors)
        return result

    def _judged(
        self, task: StoppedTask, definition: Mapping[str, object] | None
    ) -> tuple[EndedTask, TaskContainers]:
        """How the task ended, by its event and its definition, and its containers."""
        identified = identify_containers(definition, task)
        end, batch = judge(task, identified)
        if len(identified.candidates) > 1:
            self.warn(
                f"Task {task.id} has several possible batch containers "
                f"({', '.join(identified.candidates)}), which are judged together: set "
                "TASK_PROFILER_CONTAINER in the monitor's environment to the batch's name."
            )
        containers = replace(identified, batch=batch)
        ended = EndedTask(
            task=task,
            end=end,
            container=batch,
            monitor=containers.monitor or MONITOR_NAME,
            log=containers.batch_log,
            labels=docker_labels(definition, batch),
            resized_from=resized_from(definition),
        )
        return ended, containers

    def _with_report(
        self,
        ended: EndedTask,
        containers: TaskContainers,
        run_log: ReportFinder,
        wanted: NoticeSettings,
        find_indexed: Callable[[], ReportLine | None] | None,
    ) -> EndedTask:
        """Add the report or the last checkpoint, and the other containers that have a report."""
        # Without a monitor, a batch that is wrapped by ``run`` has a report. Services stop by the
        # hundred.
        is_read = (
            containers.monitor is not None
            or not ended.task.is_service_task
            or should_notify(ended, wanted)
        )
        streams: list[LogTarget] = []
        if is_read:
            streams += known_values((containers.batch_log, containers.monitor_log))
        is_expected = bool(streams) and self._has_monitor(ended, containers)
        line = run_log.find(
            streams, wanted.report_wait_seconds, is_expected=is_expected, find_indexed=find_indexed
        )
        if not run_log.has_time:
            self.warn(
                f"CloudWatch Logs throttles or is slow: the report of task {ended.task.id} was not "
                "looked for everywhere."
            )
        ended = replace(ended, report_line=line, report_log=containers.log_of(line))
        other_runs = _other_runs(ended.task, containers)
        if other_runs and self._has_monitor(ended, containers):
            ended = replace(ended, also_reported=other_runs)
        return ended

    def _with_details(
        self,
        ended: EndedTask,
        settings: NoticeSettings,
        index: Index | None,
        run_log: ReportFinder,
    ) -> EndedTask:
        """What only the notice has, if there may be one: log lines, and a comparison."""
        if not should_notify(ended, settings, if_unusual=True):
            return ended
        if ended.outcome.status == "failure":
            ended = self._with_log_lines(ended, run_log, settings.log_lines)
        if index is not None:
            ended = replace(ended, comparison=index.compare(ended))
        return ended

    def _has_monitor(self, ended: EndedTask, containers: TaskContainers) -> bool:
        """Whether the run was monitored.

        ECS starts no monitor of the task's own for a batch of milliseconds.
        """
        if containers.monitor is not None and ended.task.started_at is not None:
            return True
        return (
            ended.batch is not None
            and ended.batch.exit_code is not None
            and self.is_on_instance(ended.task)
        )

    def _with_log_lines(self, notice: EndedTask, run_log: ReportFinder, count: int) -> EndedTask:
        """Add the last lines of the batch; if they cannot be read, the notice is posted without
        them.
        """
        try:
            return replace(notice, log_lines=run_log.last_lines(notice.log, count))
        except ForwarderError as error:
            self.warn(f"The notification of task {notice.task.id} has no log lines. {error}")
            return notice

    def _index(self, index: Index, ended: EndedTask, errors: _Errors) -> bool:
        """Write the documents. Returns whether that succeeded."""
        documents = event_documents(ended, index.settings)
        if not documents:
            self.warn(
                f"Task {ended.task.id} is not indexed: its batch container or all of its times "
                "are unknown."
            )
            return False
        delivered = attempt(lambda: index.deliver(documents), errors)
        if delivered is not None and delivered.rejected:
            errors.append(
                DeliveryError(
                    f"The cluster refused the task's document: {delivered.rejected[0].reason}"
                )
            )
        return delivered is not None and delivered.indexed > 0

    def _notify(
        self, notice: EndedTask, settings: NoticeSettings, errors: _Errors
    ) -> ChannelKind | None:
        """Post the notice. Returns its kind if every channel that accepts the kind has it."""
        is_success = notice.outcome.status == "success" and not (
            settings.unusual_as_failures and notice.unusual
        )
        kind: ChannelKind = "success" if is_success else "failure"
        refusals: _Errors = []
        posted = notify(self.channels(settings), notice, kind, self.once, refusals)
        errors += refusals
        return kind if posted and not refusals else None

    def _print(
        self, ended: EndedTask, result: TaskStoppedResult, kibana_url: str | None, errors: _Errors
    ) -> None:
        """Print the ended run: once if everything was done, else in each attempt, of which the
        last one counts. Without the table of keys, it is printed, too.
        """
        line = ended_line(
            ended, kibana_url=kibana_url, indexed=result.indexed, notified=result.notified
        )
        if errors:
            self.print_line(line)
            return
        key = f"{notification_key(ended)}#log"
        try:
            self.once(key, lambda: self.print_line(line))
        except ForwarderError:
            self.print_line(line)


def _indexed_report(
    index: Index | None, ended: EndedTask
) -> Callable[[], ReportLine | None] | None:
    """The search for the batch's report in the cluster; None without a cluster or a batch."""
    if index is None or ended.batch is None:
        return None
    return partial(index.find, ended.task, ended.batch)


def _other_runs(task: StoppedTask, containers: TaskContainers) -> tuple[str, ...]:
    """The containers that ran, other than the batch, of which the monitor reports each."""
    ran = {container.name for container in task.containers if container.exit_code is not None}
    return tuple(name for name in containers.reported if name != containers.batch and name in ran)


def _retry(
    ended: EndedTask,
    definition: Mapping[str, object] | None,
    start_again: StartAgain,
    errors: _Errors,
) -> MemoryRetry | None:
    """Start the run again.

    If that is not possible now, the notice says so: Lambda retries the event.
    """
    try:
        return start_again(ended, definition)
    except InProgressError:
        raise  # the other invocation posts the notice
    except ForwarderError as error:
        errors.append(error)
        sentence = "It is not known yet whether the run is started again: Lambda retries the event."
        if isinstance(error, DeliveryError):
            return MemoryRetry(sentence=sentence)
        return None


def _priced(
    ended: EndedTask, containers: TaskContainers, run_log: ReportFinder
) -> ReportLine | None:
    """Return the report with the cost of the task: of several reports, only the last one has
    it.
    """
    line = ended.report_line
    if line is None:
        return None
    record = line.report.record
    cost = record.cost
    if cost is None and line.is_final:
        others = [name for name in containers.reported if name != record.container.name]
        if others:
            streams = (*map(containers.logs.get, others), containers.monitor_log)
        else:
            streams = ()
        cost = attempt(lambda: run_log.task_cost(filter(None, streams)), [])
    return replace(line, report=replace(line.report, record=replace(record, cost=cost)))


def should_notify(notice: EndedTask, settings: NoticeSettings, *, if_unusual: bool = False) -> bool:
    """Whether the settings select this task for a notice; with ``if_unusual``, also a success
    unlike its family.
    """
    if notice.task.is_service_task and not settings.services:
        return False
    subject: Subject = "success" if notice.outcome.status == "success" else "failure"
    is_failure = settings.unusual_as_failures and (if_unusual or bool(notice.unusual))
    return settings.selects(subject, notice.family) or (
        is_failure and settings.selects("failure", notice.family)
    )

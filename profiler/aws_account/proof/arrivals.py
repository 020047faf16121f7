"""What arrives of a proof's tasks: ECS's own word, the witness's lines, reports, and what the
forwarder's functions did.
"""

import base64
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.doctor.deployment_checks import QUEUE_OUTPUTS
from profiler.aws_account.proof.plan import ProofPlan
from profiler.aws_account.proof.witness import TYPE
from profiler.aws_account.replay import count_messages
from profiler.core.clock import Clock
from profiler.core.ecs_terms import task_id
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import decoded_or_none, mapping_or_empty
from profiler.core.optional_math import known
from profiler.core.queue_messages import HiddenMessages, hidden_messages
from profiler.core.timestamps import NS_PER_MS
from profiler.record.ecs_event_outcome import end_of_event
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.line_trust import AccountTrust, is_lambda_stream
from profiler.record.record_model import CHECKPOINT, Record
from profiler.record.stop_causes import NO_EVENT, EventEnd
from profiler.record.stopped_task import StoppedTask
from profiler.runs.past_runs.log_group_runs import LogGroupRuns, ReadPages
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter, RunSource

FUNCTION_LOG = "the log of task_stopped"
DOCUMENTS = "the search cluster"
QUEUES = "the queues"


class WitnessLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the batch says of itself before a step.

    ``time`` is in seconds since 1970. ``members`` are the names of metadata and statistics.
    """

    type: str
    step: str
    time: float
    cpu_seconds: float
    needed_bytes: int | None
    held_bytes: int = 0
    written_bytes: int
    started_at: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]


_DECODER = msgspec.json.Decoder(WitnessLine)


# ECS says nothing of the end of a task that has not stopped.
NOT_STOPPED: Final = StoppedTask(arn="")


class ProofTask(Struct, kw_only=True):
    """A task of the proof, or a job with its task, and what is known of it so far.

    ``container`` is the batch's. ``failure``: why AWS started none. ``state``: its last status.
    ``log_stream`` is AWS Batch's own word. ``ended`` is the last ``task.ended`` line, empty without
    one.
    """

    scenario: str
    container: str
    stream_prefix: str
    job_id: str | None = None
    queue: str | None = None
    log_stream: str | None = None
    arn: str | None = None
    failure: str = ""
    state: str = ""
    platform: str | None = None
    instance_arn: str | None = None
    end: StoppedTask = NOT_STOPPED
    witness: tuple[WitnessLine, ...] = ()
    run: PastRun | None = None
    ended: Mapping[str, Any] = {}
    document: PastRun | None = None

    @property
    def id(self) -> str:
        return task_id(self.arn)

    @property
    def stream(self) -> str:
        """The batch's own log stream."""
        return self.log_stream or self.expected_stream

    @property
    def expected_stream(self) -> str:
        """The stream by this project's rule."""
        return f"{self.stream_prefix}/{self.container}/{self.id}"

    @property
    def record(self) -> Record | None:
        return known(attrgetter("report.record"), self.run)

    @property
    def has_started(self) -> bool:
        """Whether AWS has started the task, or the task of the job."""
        return self.arn is not None

    @property
    def has_stopped(self) -> bool:
        return self.end != NOT_STOPPED

    @property
    def event_end(self) -> EventEnd:
        """How the batch ended, by AWS."""
        if not self.has_stopped:
            return NO_EVENT
        return end_of_event(self.end, self.end.container_or_name_only(self.container))

    @property
    def started_at(self) -> Mapping[str, str]:
        """The starts of the containers, as the batch saw them last."""
        return self.witness[-1].started_at if self.witness else {}

    @property
    def exit_code(self) -> int | None:
        """The batch's, by AWS."""
        return self.end.container_or_name_only(self.container).exit_code

    @property
    def has_run(self) -> bool:
        """Whether the batch ran, as far as is known."""
        return self.exit_code is not None or bool(self.witness)


class EvidenceReader(Struct, kw_only=True):
    """Reads what has arrived so far.

    ``problems`` are the sentences about what cannot be read, by what it is. ``documents`` None: no
    search cluster is named. ``describe`` adds AWS's own word.
    """

    plan: ProofPlan
    describe: Callable[[Sequence[ProofTask]], None]
    open_client: OpenClient
    read_pages: ReadPages
    trust: AccountTrust
    documents: RunSource | None
    clock: Clock
    since_ns: int
    problems: dict[str, str] = field(default_factory=dict)

    def read_new_evidence(self, tasks: Sequence[ProofTask]) -> None:
        """Add what is new to the tasks."""
        self.describe(tasks)
        started = {task.id: task for task in tasks if task.has_started}
        self._read_group(started)
        function = self.plan.stack.outputs.get("TaskStoppedFunctionName")
        if function is not None:
            with self._note_errors(FUNCTION_LOG):
                for line in self._function_log_lines(f"/aws/lambda/{function}", "task.ended"):
                    document = mapping_or_empty(decoded_or_none(msgspec.json.decode, line))
                    task = started.get(str(document.get("taskId")))
                    if task is not None and document.get("type") == "task.ended":
                        task.ended = document
        if self.documents is not None:
            with self._note_errors(DOCUMENTS):
                for run in self._runs_of_family(self.documents):
                    task = started.get(run.record.task_id)
                    if task is not None:
                        task.document = run

    def _read_group(self, started: Mapping[str, ProofTask]) -> None:
        """The lines of the batches' own streams alone: others can write into the group, too."""
        streams = {task.stream: task for task in started.values()}
        lines: dict[str, list[WitnessLine]] = {stream: [] for stream in streams}
        for page in self.read_pages(
            logGroupName=self.plan.log_group_name, startTime=self._since_ms
        ):
            for event in page["events"]:
                line = decoded_or_none(_DECODER.decode, event["message"])
                if line is not None and line.type == TYPE and event["logStreamName"] in lines:
                    lines[event["logStreamName"]].append(line)
        for stream, task in streams.items():
            task.witness = tuple(sorted(lines[stream], key=lambda line: line.time))
        group = (self.plan.log_group_name,)
        now_ns = self.clock.wall_ns()
        reports = LogGroupRuns(self.read_pages, group, now_ns, trust=self.trust)
        for run in self._runs_of_family(reports):
            batch = started.get(run.record.task_id)
            if batch is None or not run.is_confirmed:
                continue
            if run.record.container.name == batch.container:
                batch.run = run

    def _runs_of_family(self, source: RunSource) -> Iterator[PastRun]:
        selection = RunFilter(families=(PROOF_FAMILY,), since_ns=self.since_ns)
        for run in source.runs(selection):
            if run.report.type != CHECKPOINT:
                yield run

    @property
    def _since_ms(self) -> int:
        return self.since_ns // NS_PER_MS

    def _function_log_lines(self, group: str, line_type: str) -> Iterator[str]:
        """The lines of the proof in a function's own streams."""
        pattern = f'{{ $.type = "{line_type}" && $.family = "{PROOF_FAMILY}" }}'
        pages = self.read_pages(logGroupName=group, startTime=self._since_ms, filterPattern=pattern)
        for page in pages:
            for event in page["events"]:
                if is_lambda_stream(group, event["logStreamName"]):
                    yield event["message"]

    @property
    def _queue_urls(self) -> Mapping[str, str]:
        """The addresses of the stack's queues, by their names in the stack."""
        outputs = self.plan.stack.outputs
        return {
            name.removesuffix("Url"): outputs[name] for name in QUEUE_OUTPUTS if name in outputs
        }

    def message_counts(self) -> Mapping[str, int]:
        """About how many messages are in each queue of the stack."""
        counts: dict[str, int] = {}
        with self._note_errors(QUEUES):
            self._add_message_counts(counts)
        return counts

    def grown_queues(
        self, before: Mapping[str, int], tasks: Sequence[ProofTask]
    ) -> tuple[Mapping[str, int], Sequence[str]]:
        """About how many messages are in each queue now, and the queues of which a new one is about
        one of the tasks. All messages stay.
        """
        ids = [task.id for task in tasks if task.has_started]
        counts: dict[str, int] = {}
        queues: list[str] = []
        with self._note_errors(QUEUES):
            self._add_message_counts(counts)
            grown = [name for name, count in counts.items() if count > before.get(name, 0)]
            queues += (name for name in grown if self._has_message_about(ids, name))
        return counts, queues

    def _has_message_about(self, ids: Sequence[str], queue: str) -> bool:
        permission = "sqs:ReceiveMessage and ChangeMessageVisibility"
        with (
            aws_errors("A queue cannot be read", permission),
            hidden_messages(self.open_client("sqs"), self._queue_urls[queue]) as messages,
        ):
            return _is_about(messages, ids)

    def _add_message_counts(self, counts: dict[str, int]) -> None:
        """Add how many messages are in each queue. Raises TaskProfilerError at the first one that
        cannot be read.
        """
        with aws_errors("A queue cannot be read", "sqs:GetQueueAttributes"):
            for name, url in self._queue_urls.items():
                counts[name] = count_messages(self.open_client("sqs"), url)

    @contextmanager
    def _note_errors(self, what: str) -> Iterator[None]:
        """Note the sentence of a part that cannot be read; the others are."""
        try:
            yield
            self.problems.pop(what, None)
        except TaskProfilerError as error:
            self.problems[what] = str(error)


def _is_about(messages: HiddenMessages, ids: Sequence[str]) -> bool:
    """Whether a message is about one of the tasks."""
    while received := messages.receive():
        for message in received:
            text = _message_text(message["Body"])
            if any(task in text for task in ids):
                return True
    return False


def _message_text(body: str) -> str:
    """The text of a message, and of the log lines in it."""
    data = mapping_or_empty(
        mapping_or_empty(decoded_or_none(msgspec.json.decode, body)).get("awslogs")
    ).get("data")
    try:
        return body + gzip.decompress(base64.b64decode(str(data or ""))).decode(errors="replace")
    except (OSError, ValueError, EOFError):
        return body

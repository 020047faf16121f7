"""The search documents of runs, checkpoints and notices; notices have an index of their own.

Every writer of a run's document first sees what is there, so that the document is the same in
whatever order report and event arrive (``profiler/forwarder/merged_run.py``).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.core.json_fields import mapping_or_empty, text_or_none
from profiler.core.optional_math import first_known, known, known_members
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.document_fields import (
    Fields,
    fields_of_outcome,
    merged_fields,
    run_fields,
    run_outcome_fields,
    set_field,
    set_monthly_saving,
)
from profiler.forwarder.line_kinds import InvalidReport, decode_report_line
from profiler.forwarder.merged_run import (
    merge_report_and_event,
    moment_within_task,
    run_of_report,
    with_unknown_fields_from,
)
from profiler.forwarder.report_verification import (
    CLAIM_FIELDS,
    INSTANCE_MONITOR,
    LogStreamClaim,
    claim_of_document,
)
from profiler.forwarder.run_event import EVENT_FIELDS, RunEvent, run_event_of_document
from profiler.forwarder.run_links import kibana_task_url
from profiler.record.batch_job import NO_JOB, BatchJob, batch_job_of_document, known_job_fields
from profiler.record.notice_model import NoticeLine
from profiler.record.record_model import Report
from profiler.record.stop_causes import outcome_of

# Elasticsearch and OpenSearch reject a whole bulk request if one id in it is longer.
MAX_ID_BYTES = 512
# Of what Batch's event alone has told: no run.
JOB_DATASET = "batch.job"
# What Batch's event says in the ``task`` of a document.
_WORDS_OF_ATTEMPT = ("repeated", "last_attempt")
_WORDS_OF_JOB = ("job_end", *_WORDS_OF_ATTEMPT, "retry_of", "retried_as")
_STREAM_DIGITS = 16
_MAX_SHOWN_LENGTH = 40
TOO_LONG = InvalidReport(
    f"The document's id, of task id, container name and the kind of a notification, would "
    f"exceed {MAX_ID_BYTES} bytes."
)
# The action and the body of a document in a bulk request.
_Item: TypeAlias = tuple[Mapping[str, object], Mapping[str, object]]
# What a writer needs of an existing document of a run.
STORED_FIELDS = (
    *EVENT_FIELDS,
    *("task.outcome", "task.status", "task.stop_category", "event.outcome"),
    *("task.complete", "task.confirmed", *CLAIM_FIELDS),
    *("task.report_account", "task.repeated", "task.last_attempt", "task.known_at"),
    *("@timestamp", "event.start", "event.end", "event.dataset", "event.ingested", "batch"),
)

# What an index may lack, by an older mapping, without another meaning of the document.
_FIELDS_OF_ARRIVAL = frozenset({"task.known_at", "event.ingested"})
# What says which run or notice it is, how it ended, and what its numbers mean.
_NEEDED_FIELDS = (
    frozenset(
        {
            *STORED_FIELDS,
            *("task.id", "task.family", "container.name", "record"),
            *("event.kind", "notice.kind", "notice.due_at", "notice.message"),
            *("schedule.kind", "schedule.group", "schedule.name"),
            *("task.likely_out_of_memory", "task.gpu_error", "usage.gpu.out_of_memory"),
            *("usage.at_least", "usage.estimated"),
        }
    )
    - _FIELDS_OF_ARRIVAL
)


class DocumentArrival(Struct, frozen=True, kw_only=True):
    """When what a document says arrived, by the forwarder's clock (RFC 3339).

    ``known_at`` decides which morning message has the run: when ECS's first event arrived, or the
    end of its job if the job waited for another attempt. An ingest pipeline may set ``ingested``,
    as Elastic's own do with each write; ``known_at`` is nobody else's field.
    """

    ingested: str | None = None
    known_at: str | None = None

    def with_arrival_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        added = dict(fields)
        if self.ingested:
            added["event"] = {**mapping_or_empty(fields.get("event")), "ingested": self.ingested}
        if self.known_at:
            added["task"] = {**mapping_or_empty(fields.get("task")), "known_at": self.known_at}
        return added


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run's document in the search cluster: its fields of ``STORED_FIELDS``, and the version
    to write under.
    """

    fields: Mapping[str, Any]
    seq_no: int
    primary_term: int

    @property
    def has_report(self) -> bool:
        """Whether its numbers come from a report."""
        return mapping_or_empty(self.fields.get("task")).get("complete") is True

    @property
    def report(self) -> Report | None:
        """The report in the document, if it has one and its line was asked for."""
        line = self.fields.get("record")
        if not self.has_report or not isinstance(line, str):
            return None
        report = decode_report_line(line)
        return report if isinstance(report, Report) else None

    @property
    def arrival(self) -> DocumentArrival:
        """When the document was written first, and when its run became known."""
        return DocumentArrival(
            ingested=text_or_none(mapping_or_empty(self.fields.get("event")).get("ingested")),
            known_at=text_or_none(mapping_or_empty(self.fields.get("task")).get("known_at")),
        )

    @property
    def is_repeated_by_batch(self) -> bool:
        """Whether ECS has told of an attempt of a job after which Batch wants to make another."""
        task = mapping_or_empty(self.fields.get("task"))
        is_repeated = task.get("repeated") is True and task.get("last_attempt") is not True
        return is_repeated and run_event_of_document(self.fields) is not None

    @property
    def batch_job_end(self) -> str | None:
        """Batch's word for the end of the attempt."""
        return text_or_none(mapping_or_empty(self.fields.get("task")).get("job_end"))

    @property
    def is_of_job_alone(self) -> bool:
        """Whether Batch's event came before the task's event and before its report."""
        return mapping_or_empty(self.fields.get("event")).get("dataset") == JOB_DATASET

    @property
    def claim(self) -> LogStreamClaim:
        return claim_of_document(self.fields)

    @property
    def report_account(self) -> str | None:
        """The account of the log group that has the report."""
        return text_or_none(mapping_or_empty(self.fields.get("task")).get("report_account"))


class KeptReport(Struct, frozen=True, kw_only=True):
    """The line of a report, and the account of its log group.

    The report is decoded again where the cluster has the run already: the reports of all documents
    that are held would take three times the memory of their lines.
    """

    text: str
    account_id: str | None

    @property
    def report(self) -> Report:
        """The report. Raises ValueError if the line has none."""
        report = decode_report_line(self.text)
        if not isinstance(report, Report):
            raise ValueError("A document is made of a line that has a report.")  # noqa: TRY004
        return replace(report, record=replace(report.record, account_id=self.account_id))


class EventWithTaskId(Struct, frozen=True, kw_only=True):
    """A task's event, and the task's id.

    ``is_of_job``: the event is Batch's, of the job that the task is an attempt of. It completes
    ECS's word, and is no word on the task's identity.
    """

    event: RunEvent
    task_id: str
    is_of_job: bool = False

    def combined_event(self, stored: "StoredRun") -> RunEvent | None:
        """What both events say, of which the document has the other one's; None without ECS's."""
        if self.is_of_job:
            return run_event_of_document(stored.fields)
        return replace(self.event, job_end=stored.batch_job_end)

    def refutes_stored_report(self, stored: "StoredRun") -> bool:
        """Whether the report in the document is not of the event's task."""
        if self.is_of_job:
            return False
        return self.event.verdict_on_report(stored.claim, stored.report_account) == "refuted"


class Document(Struct, frozen=True, kw_only=True, dict=True):
    """One document to write. The ``id`` makes repeated writes idempotent."""

    index: str
    id: str
    fields: Mapping[str, Any]  # set in an existing document
    upsert: Mapping[str, Any] | None = None  # the fields of a new one; None: ``fields``
    kibana_url: str | None = None
    # The indices, separated by commas, that may have the run's document under another start.
    searched: str | None = None
    stored: StoredRun | None = None
    notice: NoticeLine | None = None
    # A checkpoint of its task that shows most of the memory in use.
    near_full: Report | None = None
    # Of its family, if the search cluster knows enough runs.
    runs_per_month: float | None = None
    # When a run's document is written: a new one keeps it.
    arrived_at: str | None = None
    # The paths of fields that the index does not take.
    left_out: tuple[str, ...] = ()

    @property
    def initial_fields(self) -> Mapping[str, Any]:
        return self.new_arrival.with_arrival_fields(first_known(self.upsert, self.fields))

    @property
    def new_arrival(self) -> DocumentArrival:
        """When a new document arrived."""
        return DocumentArrival(ingested=self.arrived_at)

    @property
    def has_arrival(self) -> bool:
        """Whether it keeps when it arrived: a run's, or a job's that had none."""
        return mapping_or_empty(self.fields.get("event")).get("dataset") == JOB_DATASET

    def with_arrival_time(self, moment: str) -> "Document":
        """The document with its arrival, if it keeps that."""
        return replace(self, arrived_at=moment) if self.has_arrival else self

    @property
    def claim(self) -> LogStreamClaim:
        """The log stream of a report."""
        return claim_of_document(self.fields)

    @property
    def report_account(self) -> str | None:
        """The account of the log group that has the report, if it is a report's."""
        return None

    @cached_property
    def bulk_lines(self) -> tuple[bytes, bytes]:
        """The two lines of a bulk request, without a script, encoded once.

        An update sets its fields and keeps all others. A report is written if the document does
        not exist yet, else the request only returns the stored document. Then the report completes
        it, or replaces what came from the event alone. An event first sees, too, what is there,
        and whether it is the first one. The version makes the second request fail if another
        writer came first.
        """
        action, body = self._bulk_item()
        if self.left_out and "update" in action:
            parts = {name: body[name] for name in ("doc", "upsert") if name in body}
            body = {
                **body,
                **{
                    name: self._indexed_fields(mapping_or_empty(part))
                    for name, part in parts.items()
                },
            }
        elif self.left_out:
            body = self._indexed_fields(body)
        return msgspec.json.encode(action), msgspec.json.encode(body)

    def _indexed_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields that the index takes."""
        for path in self.left_out:
            fields = _without_field(fields, *path.split("."))
        return fields

    def has_more_to_write(self, _stored: StoredRun) -> bool:
        """Whether a second request is necessary for the document that the first one returned."""
        return False

    def _bulk_item(self) -> _Item:
        """The action and the body in a bulk request: it is merged by the cluster."""
        return self._update_action(), {"doc": self.fields, **self._upsert_members()}

    def _update_action(self) -> Mapping[str, object]:
        return {"update": {"_index": self.index, "_id": self.id, "retry_on_conflict": 5}}

    def _upsert_members(self) -> Mapping[str, object]:
        if self.upsert is None and not self.arrived_at:
            return {"doc_as_upsert": True}
        return {"upsert": self.initial_fields}


class RunDocument(Document, frozen=True, kw_only=True, dict=True):
    """A document of a run, written by its report or by its event, each of which respects what the
    other has written: ``stored``, once it is known.

    A document that was not read before is merged by the cluster; one that was is replaced only if
    it has not changed since.
    """

    @property
    def has_arrival(self) -> bool:
        return True

    def _bulk_item(self) -> _Item:
        stored = self.stored
        if stored is None:
            return self._unmerged_bulk_item()
        place = {"_index": self.index, "_id": self.id}
        versioned = {**place, "if_seq_no": stored.seq_no, "if_primary_term": stored.primary_term}
        return self._merged_bulk_item(stored, versioned)

    @abstractmethod
    def _unmerged_bulk_item(self) -> _Item:
        """The action and the body without what is stored."""

    @abstractmethod
    def _merged_bulk_item(self, stored: StoredRun, versioned: Mapping[str, object]) -> _Item:
        """The action and the body that merge the document with what is stored."""


class ReportDocument(RunDocument, frozen=True, kw_only=True, dict=True):
    """A document of a run by its report."""

    report: KeptReport
    # The report was read for the task's event, in its own log streams.
    is_of_event: bool = False

    @property
    def report_account(self) -> str | None:
        return self.report.account_id

    def has_more_to_write(self, stored: StoredRun) -> bool:
        return self.stored is None and _may_update_stored(self, stored)

    def _unmerged_bulk_item(self) -> _Item:
        body = {"doc": {}, "upsert": self.initial_fields, "_source": STORED_FIELDS}
        return self._update_action(), body

    def _merged_bulk_item(self, stored: StoredRun, versioned: Mapping[str, object]) -> _Item:
        fields = report_fields_with_event(self, stored)
        is_same_source = self.claim == stored.claim and not _are_of_different_accounts(self, stored)
        if stored.has_report and is_same_source:
            return {"update": versioned}, {"doc": fields}
        return {"index": versioned}, stored.arrival.with_arrival_fields(fields)


class EventDocument(RunDocument, frozen=True, kw_only=True, dict=True):
    """A document of a run by its task's event, or by that of its job."""

    event: EventWithTaskId

    @property
    def new_arrival(self) -> DocumentArrival:
        """When a new document arrived; Batch's event is no word of ECS."""
        known_at = None if self.event.is_of_job else self.arrived_at
        return DocumentArrival(ingested=self.arrived_at, known_at=known_at)

    def has_more_to_write(self, _stored: StoredRun) -> bool:
        return self.stored is None

    def _unmerged_bulk_item(self) -> _Item:
        body = {"doc": {}, "upsert": self.initial_fields, "_source": (*STORED_FIELDS, "record")}
        return self._update_action(), body

    def _merged_bulk_item(self, stored: StoredRun, versioned: Mapping[str, object]) -> _Item:
        arrival = self._merged_arrival(stored)
        is_first = stored.is_of_job_alone and not self.event.is_of_job
        if is_first or self.event.refutes_stored_report(stored):
            return {"index": versioned}, arrival.with_arrival_fields(
                _with_stored_job_fields(self, stored)
            )
        present = replace(stored, fields=merged_fields(stored.fields, self.fields))
        fields = merged_fields(self.fields, _event_corrections(self, present))
        return {"update": versioned}, {"doc": arrival.with_arrival_fields(fields)}

    def _merged_arrival(self, stored: StoredRun) -> DocumentArrival:
        """The stored document's; the own one of what makes it a run that a morning message counts:
        ECS's first event, or the end of a job that waited for another attempt.
        """
        counts_now = run_event_of_document(stored.fields) is None
        if self.event.is_of_job:
            is_last = mapping_or_empty(self.fields.get("task")).get("last_attempt") is True
            counts_now = is_last and stored.is_repeated_by_batch
        if counts_now and self.arrived_at:
            return DocumentArrival(ingested=self.arrived_at, known_at=self.arrived_at)
        return stored.arrival


def may_leave_out_field(path: str) -> bool:
    """Whether a document means the same without a field: not without what says whose word it is,
    and how the run ended.
    """
    return not any(
        f"{needed}.".startswith(f"{path}.") or f"{path}.".startswith(f"{needed}.")
        for needed in _NEEDED_FIELDS
    )


def _without_field(fields: Mapping[str, Any], first: str, *rest: str) -> Mapping[str, Any]:
    """The fields without the one of this path."""
    if first not in fields:
        return fields
    if not rest:
        return {name: value for name, value in fields.items() if name != first}
    return {**fields, first: _without_field(mapping_or_empty(fields[first]), *rest)}


def _may_update_stored(document: ReportDocument, stored: StoredRun) -> bool:
    """Whether a report may write into the stored document.

    In a cluster of several accounts, an account may know the id of another one's task: the first
    account's report counts until the task's event, with the report in the task's log stream; but
    one from a stream that does not name the task blocks none that does.
    A report from a stream that does not name the task replaces no report from one that does,
    unless the task's event vouches for it; an instance monitor's never does. It does not count at
    all if the event refutes it.
    """
    claim = document.claim
    is_first = not stored.has_report or not stored.claim.is_own
    event = run_event_of_document(stored.fields)
    if event is None:
        if not document.is_of_event and _are_of_different_accounts(document, stored):
            return claim.is_own and not stored.claim.is_own
        return claim.is_own or is_first
    verdict = event.verdict_on_report(claim, document.report_account)
    if verdict == "refuted":
        return False
    is_vouched_for = claim.voucher != INSTANCE_MONITOR and verdict == "confirmed"
    return claim.is_own or is_first or is_vouched_for


def _are_of_different_accounts(document: Document, stored: StoredRun) -> bool:
    """Whether both are reports, in log groups of different accounts."""
    accounts = (document.report_account, stored.report_account)
    return None not in accounts and accounts[0] != accounts[1]


def run_document_id(task_id: str, container: str) -> str:
    """The id of a run's document."""
    return f"{task_id}/{container}"


def is_id_too_long(document_id: str) -> bool:
    """Whether a bulk request with this id would be rejected."""
    return len(document_id.encode()) > MAX_ID_BYTES


def report_fields_with_event(document: ReportDocument, stored: StoredRun) -> Fields:
    """The fields of a report, merged with those that the task's event has written."""
    event = run_event_of_document(stored.fields)
    report = document.report.report
    if event is None:
        run = run_of_report(report, document.claim)
        of_job = _stored_job_fields(stored)
    else:  # which has the other words
        run = merge_report_and_event(report, event, document.claim)
        of_job = {"task": _stored_job_values(stored, _WORDS_OF_ATTEMPT)}
    fields = merged_fields(run_fields(run, document.report.text, document.kibana_url), of_job)
    set_monthly_saving(fields, document.runs_per_month)
    return fields


def _stored_job_fields(stored: StoredRun) -> Fields:
    """What Batch's event has written."""
    words = _stored_job_values(stored, _WORDS_OF_JOB)
    if not words and not stored.is_of_job_alone:
        return {}
    fields: Fields = {"task": words} if words else {}
    job = batch_job_of_document(stored.fields.get("batch"))
    if job is not NO_JOB:
        fields["batch"] = known_job_fields(job)
    return fields


def _stored_job_values(stored: StoredRun, names: Iterable[str]) -> Fields:
    task = mapping_or_empty(stored.fields.get("task"))
    return known_members({name: task.get(name) for name in names})


def _with_stored_job_fields(document: EventDocument, stored: StoredRun) -> Fields:
    """The whole document of an event, with what Batch's event has written before."""
    event = document.event.combined_event(stored) or RunEvent()
    fields = merged_fields(_stored_job_fields(stored), document.initial_fields)
    if not event.job_end:
        return fields
    outcome = outcome_of(
        None,
        event.combined_end,
        container=text_or_none(mapping_or_empty(fields.get("container")).get("name")),
    )
    return merged_fields(fields, fields_of_outcome(outcome, is_of_event=True))


def with_runs_per_month(document: Document, runs_per_month: float) -> Document:
    """The document with what the recommended size would save in a month."""
    fields = merged_fields(document.fields)
    set_monthly_saving(fields, runs_per_month)
    upsert = known(merged_fields, document.upsert)
    set_monthly_saving(first_known(upsert, {}), runs_per_month)
    return replace(document, fields=fields, upsert=upsert, runs_per_month=runs_per_month)


def _event_corrections(document: EventDocument, stored: StoredRun) -> Fields:
    """What an event changes in a stored report: how the run ended, times outside of the task's
    life, its job of AWS Batch, and whether the run is confirmed.
    """
    event = document.event.combined_event(stored)
    if event is None:
        return {}
    fields = _corrected_end_fields(event, stored)
    if document.event.is_of_job:
        return fields
    verdict = event.verdict_on_report(stored.claim, stored.report_account)
    if event.is_identified and verdict != "confirmed":
        fields = merged_fields(fields, {"task": {"confirmed": False}})
    times = mapping_or_empty(stored.fields.get("event"))
    before = {
        "event.start": parse_datetime(text_or_none(times.get("start"))),
        "event.end": parse_datetime(text_or_none(times.get("end"))),
        "@timestamp": parse_datetime(text_or_none(stored.fields.get("@timestamp"))),
    }
    within = {path: moment_within_task(moment, event) for path, moment in before.items()}
    if within == before:
        return fields
    for path, moment in known_members(within).items():
        set_field(fields, path, format_datetime(moment))
    ended = within["event.end"] or within["@timestamp"]
    began = within["event.start"] or ended
    link = kibana_task_url(document.kibana_url, document.event.task_id, began, ended)
    if link:
        set_field(fields, "links.run", link)
    return fields


def _corrected_end_fields(event: RunEvent, stored: StoredRun) -> Fields:
    """How the run ended, and its job, by the stored report and the event, where the document says
    otherwise.
    """
    report = stored.report
    if report is not None:
        run = merge_report_and_event(report, event, stored.claim)
        return {
            **_corrected_outcome_fields(run_outcome_fields(run), stored),
            **_corrected_job_fields(run.record.batch, report.record.batch, stored),
        }
    if event.job_end:
        outcome = outcome_of(None, event.combined_end)
        return _corrected_outcome_fields(fields_of_outcome(outcome, is_of_event=True), stored)
    return {}


def _corrected_outcome_fields(wanted: Fields, stored: StoredRun) -> Fields:
    """The fields of the outcome, if the document has others."""
    present = stored.fields
    is_same = all(
        mapping_or_empty(present.get(part)).get(name) == value
        for part, values in wanted.items()
        for name, value in values.items()
    )
    return {} if is_same else wanted


def _corrected_job_fields(wanted: BatchJob, reported: BatchJob, stored: StoredRun) -> Fields:
    """The job of the run by its report and its event, where the document names another."""
    present = batch_job_of_document(stored.fields.get("batch"))
    if present is NO_JOB:
        return {}
    if wanted is not NO_JOB and wanted.job_id == present.job_id:
        of_events: dict[str, Any] = {
            name: value
            for name, value in known_job_fields(present).items()
            if value != getattr(reported, name)
        }
        wanted = with_unknown_fields_from(wanted, BatchJob(**of_events))
    if wanted == present:
        return {}
    return {"batch": None if wanted is NO_JOB else asdict(wanted)}

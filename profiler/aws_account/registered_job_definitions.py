"""Job definitions in AWS Batch, in the form of task definitions: finds, reads, registers and
deregisters them.

Batch answers a few calls a second for the whole account. Its lists have the whole definitions with
their tags, so that one list answers for all of them.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from profiler.aws_account.aws_errors import OpenClient, aws_errors, check_lost_call_was_done
from profiler.aws_account.cloudformation_owners import JOB_DEFINITION_TYPE, CloudFormationOwners
from profiler.aws_account.compute_environments import READ_ENVIRONMENTS, max_vcpus_of_environments
from profiler.aws_account.eventbridge_calls import without_nulls
from profiler.aws_account.family_circumstances import FamilyCircumstancesReader
from profiler.aws_account.job_queues import raise_on_missing_queue
from profiler.aws_account.registered_definitions import LastBody, glob_prefix, revision_of
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.target_overrides import job_size_overrides, submitted_timeout_ms
from profiler.core.aws_clients import AwsClient
from profiler.core.clock import Clock
from profiler.core.ecs_terms import family_of, revision_number, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.batch_job_detail import STATUSES
from profiler.sizing.sized_revision import RESIZED_FROM, RESTORED_OVER, REVERTED_FROM
from profiler.task_definitions.definition_json import tags_of
from profiler.task_definitions.job_as_task_definition import described_form, registered_form

DESCRIBE_RIGHT = "batch:DescribeJobDefinitions"
_ACTIVE = "ACTIVE"
# More names than these are looked for in the list of all.
_MAX_NAMED = 10
_UNPACED_CALLS = 10
_NS_PER_CALL = NS_PER_SECOND // 3


class JobDefinitions:
    """The account's job definitions, with the methods of
    :class:`~profiler.aws_account.registered_definitions.TaskDefinitions`. Every method raises
    TaskProfilerError with Batch's reason.

    After the first calls, they are a third of a second apart, because others of the account call
    Batch, too.
    """

    def __init__(self, open_client: OpenClient, clock: Clock) -> None:
        self._open_client = open_client
        self._clock = clock
        self._calls = 0
        self._next_ns = 0
        # By name, what the first list had: the first question for a definition is answered by it.
        self._ahead: dict[str, bytes] = {}
        self._named = 0
        # By name, all revisions by their numbers.
        self._revisions: dict[str, dict[int, bytes]] = {}
        self._vcpus: dict[str, float] = {}  # by the queue

    # What a rollout asks.

    def families(self, glob: str) -> frozenset[str]:
        """The names with an active revision that match the glob."""
        self._named += 1
        if glob_prefix(glob) == glob and self._named <= _MAX_NAMED:
            found = self._newest_listed(jobDefinitionName=glob)
        else:
            found = self._all_active
        names = frozenset(name for name in found if fnmatchcase(name, glob))
        self._ahead |= {name: found[name] for name in names}
        return names

    def describe(self, name: str) -> bytes:
        """The form of the newest active revision of a name, or of ``name:revision``."""
        definition, _, revision = name.partition(":")
        if revision:
            found = self._forms_by_revision(definition).get(revision_number(revision) or 0)
        elif definition in self._ahead:
            return self._ahead.pop(definition)
        else:
            self._revisions.pop(definition, None)
            found = self._newest_active(definition)
        if found is None:
            raise TaskProfilerError(
                f"The job definition {name!r} could not be read: it is not active, or was deleted."
            )
        return found

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision, and return its ARN."""
        form = registered_form(definition)
        self._revisions.pop(str(form["jobDefinitionName"]), None)  # also after a lost answer
        with self._paced_call(
            "No revision was registered",
            "batch:RegisterJobDefinition, batch:TagResource and iam:PassRole",
        ) as batch:
            return str(batch.register_job_definition(**form)["jobDefinitionArn"])

    def newest_withdrawn(self, name: str) -> int | None:
        """The number of the newest revision that somebody has deregistered."""
        inactive = [
            number for number, form in self._forms_by_revision(name).items() if not _is_active(form)
        ]
        return max(inactive, default=None)

    def families_of_services(self) -> frozenset[str]:
        """No service runs a job."""
        return frozenset()

    def clusters(self) -> tuple[str, ...]:
        """A job is started in a queue."""
        return ()

    # What only job definitions have.

    def tags_of_our_revisions(self, newest_arn: str) -> Mapping[int, Mapping[str, str]]:
        """The tags of the revisions of ours, by their numbers."""
        tagged = {}
        for number, form in self._forms_by_revision(family_of(newest_arn)).items():
            tags = tags_of(json.loads(form)["tags"])
            if tags.keys() & {RESIZED_FROM, REVERTED_FROM, RESTORED_OVER}:
                tagged[number] = tags
        return tagged

    def active_before(self, arn: str) -> str | None:
        """The ARN of the newest active revision, if a revision is not active any more; None
        without one.
        """
        head, _, number = arn.rpartition(":")
        forms = self._forms_by_revision(family_of(arn)).items()
        active = [other for other, form in forms if _is_active(form) and str(other) != number]
        return f"{head}:{max(active)}" if active else None

    def reinstate_older(self, arn: str, older_arn: str, key: str, value: str) -> None:
        """Deregister a revision, so that an older one is the newest again, which gets a tag. It is
        read again if no answer arrived.
        """
        name = family_of(arn)

        def is_gone() -> bool:
            self._revisions.pop(name, None)
            form = self._forms_by_revision(name).get(revision_number(revision_text(arn)) or 0)
            return form is None or not _is_active(form)

        with self._paced_call("No revision was deregistered", "batch:TagResource") as batch:
            batch.tag_resource(resourceArn=older_arn, tags={key: value})
        kept = f"No revision was deregistered, and {revision_of(older_arn)} got only the tag {key}"
        try:
            with self._paced_call(kept, "batch:DeregisterJobDefinition") as batch:
                batch.deregister_job_definition(jobDefinition=arn)
        except TaskProfilerError as error:
            check_lost_call_was_done(error, is_gone, f"{revision_of(arn)} was deregistered")
        self._revisions.pop(name, None)

    def in_queue(self, queue: str) -> frozenset[str]:
        """The names of the definitions whose jobs Batch still knows in a queue: for seven days."""
        names: set[str] = set()
        what = f"The jobs of the queue {queue} could not be listed"
        for status in STATUSES:
            pages = self._unparsed_pages(
                what, "batch:ListJobs", "list_jobs", jobQueue=queue, jobStatus=status
            )
            with raise_on_missing_queue(self._open_client, queue):
                for page in pages:
                    jobs = mappings_in_list(page.get("jobSummaryList"))
                    names |= {
                        family_of(text_or_none(job.get("jobDefinition")) or "") for job in jobs
                    }
        return frozenset(names - {""})

    def most_vcpu(self, queues: frozenset[str]) -> float:
        """The vCPUs that a job on Fargate may have, to be placed in each of the queues."""
        return min((self._most_vcpu(queue) for queue in sorted(queues)), default=math.inf)

    def _most_vcpu(self, queue: str) -> float:
        """The vCPUs of the largest environment of a queue; without any that is known, no limit."""
        if queue not in self._vcpus:
            what = f"The room of the queue {queue} could not be read"
            with self._paced_call(what, READ_ENVIRONMENTS) as batch:
                self._vcpus[queue] = max(max_vcpus_of_environments(batch, queue), default=math.inf)
        return self._vcpus[queue]

    @cached_property
    def _all_active(self) -> Mapping[str, bytes]:
        return self._newest_listed()

    def _newest_listed(self, **selection: str) -> Mapping[str, bytes]:
        """The newest active revision of each name."""
        newest: dict[str, Mapping[str, Any]] = {}
        for job in self._described_definitions(status=_ACTIVE, **selection):
            name = str(job["jobDefinitionName"])
            if name not in newest or job["revision"] > newest[name]["revision"]:
                newest[name] = job
        return {name: _definition_form(job) for name, job in newest.items()}

    def _newest_active(self, name: str) -> bytes | None:
        forms = self._forms_by_revision(name)
        active = [number for number, form in forms.items() if _is_active(form)]
        return forms[max(active)] if active else None

    def _forms_by_revision(self, name: str) -> Mapping[int, bytes]:
        if name not in self._revisions:
            listed = self._described_definitions(jobDefinitionName=name)
            self._revisions[name] = {int(job["revision"]): _definition_form(job) for job in listed}
        return self._revisions[name]

    def _described_definitions(self, **selection: str) -> Iterator[Mapping[str, Any]]:
        what = "The job definitions could not be read"
        pages = self._unparsed_pages(what, DESCRIBE_RIGHT, "describe_job_definitions", **selection)
        for page in pages:
            yield from mappings_in_list(page.get("jobDefinitions"))

    def _unparsed_pages(
        self, what: str, right: str, operation: str, **selection: str
    ) -> Iterator[Mapping[str, Any]]:
        """The pages, not as boto3 parses them, which lacks fields that it does not know."""
        token: dict[str, str] = {}
        while True:
            with self._paced_call(what, right) as batch:
                getattr(batch, operation)(**selection, **token)
                page = mapping_or_empty(without_nulls(json.loads(self._body.content)))
            yield page
            following = text_or_none(page.get("nextToken"))
            if not following:
                return
            token = {"nextToken": following}

    @cached_property
    def _client(self) -> AwsClient:
        return self._open_client("batch")

    @cached_property
    def _body(self) -> LastBody:
        return LastBody(self._client, "*")

    @contextmanager
    def _paced_call(self, what: str, right: str) -> Iterator[AwsClient]:
        """One call, when it is due."""
        now_ns = self._clock.monotonic_ns()
        self._calls += 1
        if self._calls > _UNPACED_CALLS:
            if now_ns < self._next_ns:
                self._clock.sleep((self._next_ns - now_ns) / NS_PER_SECOND)
            self._next_ns = max(now_ns, self._next_ns) + _NS_PER_CALL
        _ = self._body  # before the call
        with aws_errors(what, right):
            yield self._client


def read_job_account(
    open_client: OpenClient,
    targets: Callable[[], Sequence[ScheduledTarget]],
    definitions: JobDefinitions,
    now_ns: int,
) -> FamilyCircumstancesReader:
    """What the account of these clients says about job definitions."""
    return FamilyCircumstancesReader(
        targets=targets,
        of_services=definitions.families_of_services,
        owners=CloudFormationOwners(open_client, definition_type=JOB_DEFINITION_TYPE),
        tagged=definitions.tags_of_our_revisions,
        newest_withdrawn=definitions.newest_withdrawn,
        overrides_of=job_size_overrides,
        timeout_ms_of=submitted_timeout_ms,
        most_vcpu=definitions.most_vcpu,
        now_ns=now_ns,
    )


def _definition_form(job: Mapping[str, Any]) -> bytes:
    return json.dumps(described_form(job)).encode()


def _is_active(form: bytes) -> bool:
    return bool(json.loads(form)["taskDefinition"]["status"] == _ACTIVE)

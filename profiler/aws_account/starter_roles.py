"""The roles with which schedules and rules start tasks or submit jobs: many allow one revision
alone, so that a target which is moved to another one would start nothing, and many allow no tags,
so that a definition's first tag would keep a target from starting that gives it to its tasks.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/CWE_IAM_role.html
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/supported-iam-actions-tagging.html
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.compute_environments import (
    READ_ENVIRONMENTS,
    BatchStarter,
    own_batch_roles,
)
from profiler.aws_account.policy_verdicts import TAG, TAG_KEYS, PolicyQuestion, statement_effects
from profiler.aws_account.report_prerequisites import READ_POLICIES, ReportPathReader
from profiler.aws_account.scheduled_targets import UNKNOWN_VALUE, ScheduledTarget
from profiler.aws_account.target_overrides import SubmittedTags, submitted_tags
from profiler.core.aws_error_codes import ACCESS_DENIED, error_code
from profiler.core.ecs_terms import (
    arn_account,
    arn_region,
    cluster_name,
    revision_number,
    revision_text,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text_or_none
from profiler.core.optional_math import first_known, known_members
from profiler.core.text import listed
from profiler.record.batch_job import resource_name
from profiler.task_definitions.definition_json import tags_of
from profiler.task_definitions.job_as_task_definition import propagates_tags

_RUN_ACTION = "ecs:RunTask"
_TAG_ACTION = "ecs:TagResource"
_CLUSTER = "ecs:cluster"
_READ_ROLE = f"iam:GetRole, {READ_POLICIES}"
# A number that no family reaches: what may start it may start any later revision.
_ANY_LATER = 2**31


class StarterRoleReader:
    """Reads the policies of each role once. Methods raise TaskProfilerError if it cannot.

    ``newest_withdrawn``: the number of a family's newest deregistered revision.
    """

    def __init__(
        self,
        open_client: OpenClient,
        newest_withdrawn: Callable[[str], int | None] = lambda _family: None,
    ) -> None:
        self._open = open_client
        self._paths = ReportPathReader(open_client)
        self._newest_withdrawn = newest_withdrawn
        self._refused: dict[str, BaseException] = {}  # AWS's refusals to read a role
        self._starters: dict[str, tuple[BatchStarter, ...]] = {}  # by the job queue

    def forget_answers(self) -> None:
        """Forget what was read: a person may have been asked meanwhile."""
        self._paths = ReportPathReader(self._open)
        self._refused = {}
        self._starters = {}

    def why_role_refuses(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a pinned target could not start this revision, in words; None if its role's policies
        allow it, allow it as they do the present one, or do not even allow that: then they are not
        all that decides.
        """
        present = target.pinned_revision
        head = revision_arn.rpartition("/")[0]
        what = f"The {target.title} was not moved"
        return present and self._why_refused(target, f"{head}/{present}", revision_arn, what)

    def why_role_refuses_newer(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a target that starts the newest revision, which is this one, could start no newer
        one. ECS and Batch never give a number again, so that the next one is above those of
        deregistered revisions.
        """
        number = first_known(revision_number(revision_text(revision_arn)), 0)
        family = revision_arn.rpartition(":")[0]
        what = "It is unknown whether schedules may start a new revision"
        newer = f"{family}:{number + 1}"
        refusal = self._why_refused(target, revision_arn, newer, what)
        if refusal or not self._why_refused(target, revision_arn, f"{family}:{_ANY_LATER}", what):
            return refusal
        newest = max(number, first_known(self._newest_withdrawn(target.family), 0))
        return self._why_refused(target, revision_arn, f"{family}:{newest + 1}", what)

    def why_role_refuses_tags(
        self,
        target: ScheduledTarget,
        present: Mapping[str, object],
        new: Mapping[str, object],
        revision_arn: str,
    ) -> str | None:
        """Why a target could not give its tasks the tags of a new definition in place of the
        present one's, in words; None if its role certainly may, or may as it does now.

        Without tags so far, ECS has not asked for the right: then nothing but a policy proves it.
        """
        if target.is_of_job:
            return self._why_batch_tags_are_refused(target, present, new, revision_arn)
        before = target.tags_of_task(present)
        after = target.tags_of_task(new)
        role = self._role_of(target, revision_arn)
        if role is None or not after or after == before:
            return None
        cluster = target.cluster_arn
        place = "*" if UNKNOWN_VALUE in cluster else cluster_name(cluster)
        tasks = f"{revision_arn.partition(':task-definition/')[0]}:task/{place}/*"
        what = "It is unknown whether schedules may give their tasks a new tag"
        for action, resource in ((_TAG_ACTION, tasks), (_RUN_ACTION, revision_arn)):
            is_start = action == _RUN_ACTION
            place_of_start = (
                _cluster_condition_keys(target) if is_start else {}
            )  # AWS names no other for tags
            known = _request_condition_keys(revision_arn) | place_of_start
            asked = PolicyQuestion(action=action, resource=resource, context=known)
            is_asked_so_far = bool(before) or is_start
            with self._noting_unread_role(role, what):
                lack = self._why_tags_are_not_allowed(
                    role, asked, before if is_asked_so_far else None, after
                )
            if lack:
                # It may allow it in the cluster that a state machine's input names.
                lack = lack if place != "*" or is_start else _MAY_NOT_ALLOW
                return (
                    f"it gives its tasks their definition's tags, and its role {role} {lack} "
                    f"{action} for {_new_keys_text(before, after)}: allow {action} on {resource}"
                )
        return None

    def _why_batch_tags_are_refused(
        self,
        target: ScheduledTarget,
        present: Mapping[str, object],
        new: Mapping[str, object],
        revision_arn: str,
    ) -> str | None:
        """The refusal of the tags of a job's definition: with ``propagateTags``, AWS Batch gives
        them to the job's tasks, with the role of the environment in which it places the job.

        https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitJob.html
        """
        submitted = submitted_tags(target)
        before = _job_tags(submitted, present)
        after = _job_tags(submitted, new)
        queue = target.cluster_arn
        if not after or after == before or UNKNOWN_VALUE in queue:
            return None
        is_tagged_so_far = bool(before) or submitted.are_given
        what = "It is unknown whether AWS Batch may give jobs a new tag"
        for starter in self._batch_starters(queue):
            asked = PolicyQuestion(
                action=_TAG_ACTION,
                resource=starter.tasks_arn,
                context=_request_condition_keys(revision_arn),
            )
            present_tags = before if is_tagged_so_far else None
            with self._noting_unread_role(starter.role, what):
                lack = self._why_tags_are_not_allowed(starter.role, asked, present_tags, after)
            if lack:
                return (
                    f"its job gives its tasks their definition's tags, and the service role "
                    f"{starter.role} of the queue {resource_name(queue)} {lack} {_TAG_ACTION} for "
                    f"{_new_keys_text(before, after)}: allow {_TAG_ACTION} on {starter.tasks_arn}"
                )
        return None

    def _why_tags_are_not_allowed(
        self,
        role: str,
        asked: PolicyQuestion,
        present: Mapping[str, str] | None,
        new: Mapping[str, str],
    ) -> str | None:
        """How a role's policies do not allow what is asked with the new tags, as a verb; see
        :meth:`_why_not_allowed`. ``present``: the tags with which they do allow it; None: nothing
        shows that.
        """
        then = None
        if present is not None:
            then = replace(asked, context={**asked.context, **_tag_condition_keys(present)})
        return self._why_not_allowed(
            role, then, replace(asked, context={**asked.context, **_tag_condition_keys(new)})
        )

    def _batch_starters(self, queue: str) -> tuple[BatchStarter, ...]:
        """The roles with which AWS Batch starts the tasks of a queue, read once."""
        if queue not in self._starters:
            what = f"The environments of the queue {resource_name(queue)} could not be read"
            with aws_errors(what, READ_ENVIRONMENTS):
                self._starters[queue] = tuple(own_batch_roles(self._open("batch"), queue))
        return self._starters[queue]

    def _why_refused(
        self, target: ScheduledTarget, present_arn: str, new_arn: str, what: str
    ) -> str | None:
        role = self._role_of(target, new_arn)
        if role is None:
            return None
        action = "batch:SubmitJob" if target.is_of_job else _RUN_ACTION
        context = _cluster_condition_keys(target)
        then, now = (
            PolicyQuestion(action=action, resource=arn, context=context)
            for arn in (present_arn, new_arn)
        )
        with self._noting_unread_role(role, what):
            lack = self._why_not_allowed(role, then, now)
        head, _, new = new_arn.rpartition("/")
        present = present_arn.rpartition("/")[2]
        verb = "allows" if lack == _NOT_ALLOWED else "may allow"
        return lack and (
            f"its role {role} {verb} {present} and not {new}: allow {action} on "
            f"{head}/{target.family}:*"
        )

    def _role_of(self, target: ScheduledTarget, arn: str) -> str | None:
        """The name of the role with which a target starts what is in the account of an ARN; a rule
        has one for targets without their own. None for a role of another account, which cannot be
        read here.
        """
        of_rule = text_or_none(target.rule.get("RoleArn"))
        role_arn = text_or_none(target.started_content.get("RoleArn")) or of_rule or ""
        is_here = role_arn.split(":")[4:5] == arn.split(":")[4:5]
        return (role_arn.rpartition("/")[2] or None) if is_here else None

    @contextmanager
    def _noting_unread_role(self, role: str, what: str) -> Iterator[None]:
        """Say of an error that the role could not be read; one that may not be read is asked for
        once.
        """
        try:
            with aws_errors(f"{what}: its role {role} could not be read", _READ_ROLE):
                if role in self._refused:
                    raise self._refused[role]
                yield
        except TaskProfilerError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and error_code(cause) in ACCESS_DENIED:
                self._refused[role] = cause
            raise

    def _why_not_allowed(
        self, role: str, present: PolicyQuestion | None, new: PolicyQuestion
    ) -> str | None:
        """How a role's policies, or its boundary, do not allow something new that they must allow,
        as a verb; ``present``: what they do allow, as far as anybody knows.
        """
        for documents in self._paths.policies_that_must_allow(role, with_boundary=present is None):
            after = statement_effects(documents, new)
            if after.verdict == "allowed":
                continue
            if present is not None:
                before = statement_effects(documents, present)
                if before.verdict.startswith("denied") or after.are_as_good_as(before):
                    continue
            return _NOT_ALLOWED if after.verdict.startswith("denied") else _MAY_NOT_ALLOW
        return None


_NOT_ALLOWED = "does not allow"
_MAY_NOT_ALLOW = "may not allow"


def _cluster_condition_keys(target: ScheduledTarget) -> dict[str, tuple[str, ...]]:
    """The cluster of RunTask's request, if it is known."""
    cluster = target.cluster_arn
    is_known = cluster.startswith("arn:") and UNKNOWN_VALUE not in cluster
    return {_CLUSTER: (cluster,)} if is_known and not target.is_of_job else {}


def _request_condition_keys(arn: str) -> dict[str, tuple[str, ...]]:
    """What is known of each request of a role for what is in the role's account, as this ARN."""
    known = {"aws:requestedregion": arn_region(arn), "aws:principalaccount": arn_account(arn)}
    return {key: (value,) for key, value in known_members(known).items()}


def _job_tags(submitted: SubmittedTags, definition: Mapping[str, object]) -> Mapping[str, str]:
    """The tags of a definition that go to its job's tasks; a submission's own are left out."""
    is_propagated = first_known(submitted.are_propagated, propagates_tags(definition))
    tags = tags_of(definition.get("tags")) if is_propagated else {}
    return {key: value for key, value in tags.items() if not key.lower().startswith("aws:")}


def _new_keys_text(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    return listed(sorted(after.keys() - before.keys()) or sorted(after))


def _tag_condition_keys(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """What is known of RunTask's request to give these tags to a task."""
    by_key = {f"{TAG}{key.lower()}": (value,) for key, value in tags.items()}
    return {"ecs:createaction": ("RunTask",), TAG_KEYS: (*tags,), **by_key}

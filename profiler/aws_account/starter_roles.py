"""The roles with which schedules and rules start tasks or submit jobs: many allow one revision
alone, so that a target which is moved to another one would start nothing, and many allow no tags,
so that a definition's first tag would keep a target from starting that gives it to its tasks.

https://docs.aws.amazon.com/AmazonECS/latest/developerguide/CWE_IAM_role.html
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/supported-iam-actions-tagging.html
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.policy_verdicts import TAG, TAG_KEYS, Question, effects
from profiler.aws_account.report_paths import READ_POLICIES, ReportPaths
from profiler.aws_account.scheduled_targets import UNKNOWN_VALUE, ScheduledTarget
from profiler.core.aws_clients import ACCESS_DENIED, error_code
from profiler.core.ecs_terms import (
    arn_account,
    arn_region,
    cluster_name,
    revision_number,
    revision_text,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text
from profiler.core.optional_math import first_known, known_members
from profiler.core.text import listed

_RUN_ACTION = "ecs:RunTask"
_TAG_ACTION = "ecs:TagResource"
_CLUSTER = "ecs:cluster"
_READ_ROLE = f"iam:GetRole, {READ_POLICIES}"
# A number that no family reaches: what may start it may start any later revision.
_ANY_LATER = 2**31


class StarterRoles:
    """Reads the policies of each role once. Methods raise TaskProfilerError if it cannot.

    ``newest_withdrawn``: the number of a family's newest deregistered revision.
    """

    def __init__(
        self,
        open_client: OpenClient,
        newest_withdrawn: Callable[[str], int | None] = lambda _family: None,
    ) -> None:
        self._open = open_client
        self._paths = ReportPaths(open_client)
        self._newest_withdrawn = newest_withdrawn
        self._refused: dict[str, BaseException] = {}  # AWS's refusals to read a role

    def ask_again(self) -> None:
        """Forget what was read: a person may have been asked meanwhile."""
        self._paths = ReportPaths(self._open)
        self._refused = {}

    def refusal(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a pinned target could not start this revision, in words; None if its role's policies
        allow it, allow it as they do the present one, or do not even allow that: then they are not
        all that decides.
        """
        present = target.pinned_revision
        head = revision_arn.rpartition("/")[0]
        what = f"The {target.title} was not moved"
        return present and self._refusal(target, f"{head}/{present}", revision_arn, what)

    def refusal_of_newer(self, target: ScheduledTarget, revision_arn: str) -> str | None:
        """Why a target that starts the newest revision, which is this one, could start no newer
        one. ECS and Batch never give a number again, so that the next one is above those of
        deregistered revisions.
        """
        number = first_known(revision_number(revision_text(revision_arn)), 0)
        family = revision_arn.rpartition(":")[0]
        what = "It is unknown whether schedules may start a new revision"
        newer = f"{family}:{number + 1}"
        refusal = self._refusal(target, revision_arn, newer, what)
        if refusal or not self._refusal(target, revision_arn, f"{family}:{_ANY_LATER}", what):
            return refusal
        newest = max(number, first_known(self._newest_withdrawn(target.family), 0))
        return self._refusal(target, revision_arn, f"{family}:{newest + 1}", what)

    def refusal_of_tags(
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
        before, after = target.tags_of_task(present), target.tags_of_task(new)
        role = None if target.is_of_job else self._role_of(target, revision_arn)
        if role is None or not after or after == before:
            return None
        cluster = target.cluster_arn
        place = "*" if UNKNOWN_VALUE in cluster else cluster_name(cluster)
        tasks = f"{revision_arn.partition(':task-definition/')[0]}:task/{place}/*"
        what = "It is unknown whether schedules may give their tasks a new tag"
        new_keys = listed(sorted(after.keys() - before.keys()) or sorted(after))
        for action, resource in ((_TAG_ACTION, tasks), (_RUN_ACTION, revision_arn)):
            is_start = action == _RUN_ACTION
            place_of_start = _of_cluster(target) if is_start else {}  # AWS names no other for tags
            known = _of_request(revision_arn) | place_of_start
            then, now = (
                Question(action=action, resource=resource, context=_of_tags(tags) | known)
                for tags in (before, after)
            )
            is_asked_so_far = bool(before) or is_start
            with self._reading(role, what):
                lack = self._lack(role, then if is_asked_so_far else None, now)
            if lack:
                # It may allow it in the cluster that a state machine's input names.
                lack = lack if place != "*" or is_start else _MAY_NOT_ALLOW
                return (
                    f"it gives its tasks their definition's tags, and its role {role} {lack} "
                    f"{action} for {new_keys}: allow {action} on {resource}"
                )
        return None

    def _refusal(
        self, target: ScheduledTarget, present_arn: str, new_arn: str, what: str
    ) -> str | None:
        role = self._role_of(target, new_arn)
        if role is None:
            return None
        action = "batch:SubmitJob" if target.is_of_job else _RUN_ACTION
        context = _of_cluster(target)
        then, now = (
            Question(action=action, resource=arn, context=context) for arn in (present_arn, new_arn)
        )
        with self._reading(role, what):
            lack = self._lack(role, then, now)
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
        of_rule = text(target.rule.get("RoleArn"))
        role_arn = text(target.started.get("RoleArn")) or of_rule or ""
        is_here = role_arn.split(":")[4:5] == arn.split(":")[4:5]
        return (role_arn.rpartition("/")[2] or None) if is_here else None

    @contextmanager
    def _reading(self, role: str, what: str) -> Iterator[None]:
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

    def _lack(self, role: str, present: Question | None, new: Question) -> str | None:
        """How a role's policies, or its boundary, do not allow something new that they must allow,
        as a verb; ``present``: what they do allow, as far as anybody knows.
        """
        for documents in self._paths.policies_of(role, with_boundary=present is None):
            after = effects(documents, new)
            if after.verdict == "allowed":
                continue
            if present is not None:
                before = effects(documents, present)
                if before.verdict.startswith("denied") or after.are_as_good_as(before):
                    continue
            return _NOT_ALLOWED if after.verdict.startswith("denied") else _MAY_NOT_ALLOW
        return None


_NOT_ALLOWED, _MAY_NOT_ALLOW = "does not allow", "may not allow"


def _of_cluster(target: ScheduledTarget) -> dict[str, tuple[str, ...]]:
    """The cluster of RunTask's request, if it is known."""
    cluster = target.cluster_arn
    is_known = cluster.startswith("arn:") and UNKNOWN_VALUE not in cluster
    return {_CLUSTER: (cluster,)} if is_known and not target.is_of_job else {}


def _of_request(arn: str) -> dict[str, tuple[str, ...]]:
    """What is known of each request of a role for what is in the role's account, as this ARN."""
    known = {"aws:requestedregion": arn_region(arn), "aws:principalaccount": arn_account(arn)}
    return {key: (value,) for key, value in known_members(known).items()}


def _of_tags(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """What is known of RunTask's request to give these tags to a task."""
    by_key = {f"{TAG}{key.lower()}": (value,) for key, value in tags.items()}
    return {"ecs:createaction": ("RunTask",), TAG_KEYS: (*tags,), **by_key}

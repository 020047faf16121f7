"""The policies that let the task roles of a rollout's families put reports."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.cloudformation_owners import ROLE_REMEDY, CloudFormationOwners
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.report_prerequisites import attach_policy, plan_policy, task_role
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.permissions import (
    POLICY_NAME,
    RolePolicy,
    planned_policy,
)


class RolePolicies(Struct, kw_only=True):
    """Plans and attaches the policies of task roles, but of those that a stack owns.

    ``reads_roles``: whether they are to be attached. ``note_failure`` is told the role and why.
    """

    open_client: OpenClient
    reads_roles: bool
    owners: CloudFormationOwners | None
    on_step: Callable[[str], object]
    on_problem: Callable[[str], object]
    note_failure: Callable[[str, TaskProfilerError], object]
    attached: list[RolePolicy] = []
    left_roles: set[str] = set()  # to the stacks that own them

    def plan(self, planned: Iterable[PlannedFamily]) -> Iterator[RolePolicy]:
        """The policy of each task role, but for those of families alone that are left alone;
        if nothing is to be attached, the roles are not read.
        """
        streams: dict[str, frozenset[str]] = {}
        for family in planned:
            role = task_role(family.changed.definition)
            if role and family.report_stream_arns and not family.is_left_alone:
                streams[role] = streams.get(role, frozenset()) | family.report_stream_arns
        for role, needed_streams in sorted(streams.items()):
            try:
                if self.reads_roles:
                    policy = plan_policy(self.open_client, role, needed_streams)
                    if policy.is_sufficient or not self._is_left_to_stack(role):
                        yield policy
                else:
                    yield planned_policy(role, needed_streams)
            except TaskProfilerError as error:
                if self.reads_roles:
                    self.note_failure(role, error)

    def _is_left_to_stack(self, role: str) -> bool:
        """Whether a stack owns the role, which is said once. Raises TaskProfilerError."""
        owner = None if self.owners is None else self.owners.why_stack_owns_role(role)
        if owner is None:
            return False
        if role not in self.left_roles:
            self.left_roles.add(role)
            self.on_problem(
                f"The role {role} is left alone: {owner}. {ROLE_REMEDY.format('--policy')}"
            )
        return True

    def attach(self, policy: RolePolicy) -> None:
        """Attach a policy if it does not suffice, made again from what the role has now.

        IAM replaces a policy as a whole, also with what somebody made from an earlier reading: of a
        policy that was attached before, this reads the role once more.
        """
        if policy.is_sufficient:
            return
        try:
            current = plan_policy(self.open_client, policy.role, policy.streams)
            if current.is_sufficient:
                return  # somebody else has attached it
            if self.owners is not None:
                self.owners.forget_answers()
            if self._is_left_to_stack(policy.role):
                return
            attach_policy(self.open_client, current)
            step = f"attached the policy {POLICY_NAME} to the role {policy.role}"
            if policy in self.attached:
                self.on_step(f"{step} again, because IAM did not return it")
                return
            self.on_step(step)
            self.attached.append(policy)
        except TaskProfilerError as error:
            self.note_failure(policy.role, error)

"""What the report of a task needs in AWS: the permissions of its roles, its log group, and a
subscription of it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from profiler.aws_account.aws_errors import (
    OpenClient,
    aws_errors,
    check_lost_call_was_done,
    noted_errors,
)
from profiler.aws_account.cloudformation_owners import DESCRIBE_RIGHT, CloudFormationOwners
from profiler.aws_account.clusters_and_log_groups import (
    STANDARD,
    account_subscriptions,
    log_group_class,
    passes_reports,
    subscription_filters,
)
from profiler.aws_account.ecr_images import EcrImage, ecr_image, is_in_registry, is_pulled_through
from profiler.aws_account.policy_verdicts import Policies, PolicyQuestion, statement_effects
from profiler.aws_account.registered_definitions import read_items
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import arn_part, arn_region
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, text_or_none
from profiler.core.optional_math import known_members, known_values
from profiler.core.text import listed
from profiler.task_definitions.permissions import (
    POLICY_NAME,
    RolePolicy,
    iam_policy_length,
    is_about_action,
    planned_policy,
    statements_of,
)

# ``denied``: no policy of the role allows it. ``denied by policy``: one has a statement that denies
# it, so that another policy changes nothing; nor does one with ``denied by boundary``.
Permission = Literal[
    "allowed", "denied", "denied by policy", "denied by boundary", "no role", "unknown"
]
# Of a role that was deleted, the deletion is said.
_NOT_REFUSED: frozenset[Permission] = frozenset({"allowed", "unknown", "no role"})
RoleKind = Literal["task role", "execution role"]
_Resources: TypeAlias = Mapping[str, Iterable[str]]  # the resources by the action
READ_POLICIES = (
    "iam:GetRolePolicy, iam:ListRolePolicies, iam:ListAttachedRolePolicies, iam:GetPolicy and "
    "iam:GetPolicyVersion"
)
_UNEVALUATED = (
    "conditions or variables, which are not evaluated, or a Deny for a part of the log streams"
)
_BOUNDARY_ARN = "PermissionsBoundaryArn"
READ_VALUE = "secretsmanager:GetSecretValue"


def task_role(definition: Mapping[str, object]) -> str | None:
    """The name of a definition's task role."""
    return (text_or_none(definition.get("taskRoleArn")) or "").rpartition("/")[2] or None


def plan_policy(open_client: OpenClient, role: str, streams: frozenset[str]) -> RolePolicy:
    """The policy that allows these streams, too.

    The role is read, and does not change. Raises TaskProfilerError.
    """
    iam = open_client("iam")
    with aws_errors(
        f"The policy of the role {role!r} was not changed",
        "iam:GetRolePolicy and iam:ListRolePolicies",
    ):
        documents = _inline_policies(iam, role)
    existing = documents.pop(POLICY_NAME, None)
    others = sum(map(iam_policy_length, documents.values()))
    return planned_policy(role, streams, existing, other_characters=others)


def attach_policy(open_client: OpenClient, policy: RolePolicy) -> None:
    """Write the policy, and read it again if no answer arrived. Raises TaskProfilerError."""
    iam = open_client("iam")
    kept = f"The policy of the role {policy.role!r} was not changed"

    def is_attached() -> bool:
        with aws_errors(kept, "iam:GetRolePolicy"):
            return inline_policy(iam, policy.role, POLICY_NAME) == policy.document

    try:
        with aws_errors(kept, "iam:PutRolePolicy"):
            iam.put_role_policy(
                RoleName=policy.role,
                PolicyName=POLICY_NAME,
                PolicyDocument=json.dumps(policy.document),
            )
    except TaskProfilerError as error:
        check_lost_call_was_done(
            error, is_attached, f"the policy of the role {policy.role!r} was changed"
        )


def _inline_policies(iam: AwsClient, role: str) -> dict[str, Mapping[str, object]]:
    """The documents of a role's inline policies.

    Raises boto3's errors, also if the role does not exist.
    """
    documents: dict[str, Mapping[str, object]] = {}
    for name in read_items(iam, "list_role_policies", "PolicyNames", RoleName=role):
        document = inline_policy(iam, role, name)
        documents |= known_members({name: document})
    return documents


def inline_policy(iam: AwsClient, role: str, name: str) -> Mapping[str, object] | None:
    """The document of a role's inline policy; None if there is none."""
    try:
        return mapping_or_empty(
            iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        )
    except iam.exceptions.NoSuchEntityException:
        return None


class LogGroupState(Struct, frozen=True, kw_only=True):
    """Whether a log group exists, its class, and the names of the targets of its reports.

    ``exists`` None: unknown. ``is_forwarding_known``: all subscriptions could be read.
    """

    exists: bool | None
    is_forwarding_known: bool = True
    group_class: str = STANDARD
    forwarded_to: tuple[str, ...] = ()


class RoleDenial(Struct, frozen=True, kw_only=True):
    """What a role is refused, as a sentence, and what to do."""

    text: str
    remedy: str


class _RoleWithBoundary(Struct, frozen=True, kw_only=True):
    """A role, the name of its permissions boundary, and the boundary's policies."""

    arn: str
    boundary: str = ""  # empty: none
    documents: Policies = ()


class ReportPathReader:
    """Reads roles, log groups and subscriptions, each once.

    An unreadable part is unknown, with one sentence; without ``open_region``, so are the
    registries of other Regions, silently.
    """

    def __init__(
        self,
        open_client: OpenClient,
        open_region: Callable[[str], OpenClient] | None = None,
    ) -> None:
        self._open = open_client
        self._open_region = open_region
        self._policies_of = cache(self._read_policies)
        self._described_role = cache(self._describe_role)
        self._boundary_of = cache(self._read_boundary)
        self._owner_of_role = cache(CloudFormationOwners(open_client).why_stack_owns_role)
        self._is_refused_by_organization = cache(self._simulate_organization)
        self._managed_policy = cache(self._read_managed_policy)
        self._is_missing = cache(self._read_is_image_missing)
        self._may_repository_allow = cache(self._read_may_repository_allow)
        self.log_group = cache(self._read_log_group)
        self.problems: set[str] = set()
        # What IAM has not answered for one role, so that it is not asked, and said, for each.
        self._unread: set[Literal["boundaries", "organization", "owners"]] = set()

    def may_role_write(self, role: str | None, streams: frozenset[str]) -> Permission | None:
        """Whether a role may write the report; None: no stream is written to. A role that was
        deleted is none, whatever is written.
        """
        if not role:
            return "no role" if streams else None
        with noted_errors(self.problems.add, "The task roles could not be read", READ_POLICIES):
            if not streams:
                return self._answer_if_role_deleted(role)
            return self._may_role_do_all(role, {"logs:PutLogEvents": streams})
        return "unknown"

    def policies_that_must_allow(self, role: str, *, with_boundary: bool) -> tuple[Policies, ...]:
        """What must allow each action of a role: its policies, and its permissions boundary if it
        has one; empty if there is no such role. Raises boto3's errors, of the boundary only
        ``with_boundary``.
        """
        documents = self._policies_of(role)
        if documents is None:
            return ()
        limited = self._described_role(role) if with_boundary else self._boundary_of(role)
        if limited is None or not limited.boundary:
            return (documents,)
        return documents, limited.documents

    def why_stack_owns_role(self, role: str) -> str | None:
        """Why a stack owns a role, or may own it, in words; None if no stack does, or if this is
        not known: then no policy is attached to it, either.
        """
        if "owners" in self._unread:
            return None
        what = "It is unknown whether stacks own the roles"
        with noted_errors(self.problems.add, what, DESCRIBE_RIGHT):
            return self._owner_of_role(role)
        self._unread.add("owners")
        return None

    def may_role_pull(self, role_arn: str, image: str) -> Permission | None:
        """Whether an execution role may pull an image; None: it is not in Amazon ECR. Unknown, if
        a policy of the repository may allow it instead.
        """
        stored = ecr_image(image)
        role = role_arn.rpartition("/")[2]
        with noted_errors(
            self.problems.add, "The execution roles could not be read", READ_POLICIES
        ):
            if stored is None:
                return self._answer_if_role_deleted(role)
            registry = f"arn:{arn_part(role_arn, 1) or 'aws'}:ecr:{stored.region}:{stored.account}"
            arn = f"{registry}:repository/{stored.repository}"
            token: _Resources = {"ecr:GetAuthorizationToken": ("*",)}
            layers = dict.fromkeys(("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"), (arn,))
            permission = self._may_role_do_all(role, {**token, **layers})
            # No policy of a repository allows the token.
            if (
                permission != "denied"
                or _answer_of_statements(self._policies_of(role) or (), token) == "denied"
            ):
                return permission
            return "unknown" if self._may_repository_allow(stored) else "denied"
        return "unknown"

    def refused_resources(
        self, role_arn: str, action: str, resources: Iterable[str]
    ) -> Mapping[Permission, Sequence[str]]:
        """The resources that an execution role certainly may not read, by the answer."""
        role = role_arn.rpartition("/")[2]
        refused: dict[Permission, list[str]] = {}
        with noted_errors(
            self.problems.add, "The execution roles could not be read", READ_POLICIES
        ):
            listed_resources = list(resources)
            if self._may_role_do_all(role, {action: listed_resources}) in _NOT_REFUSED:
                return refused
            for resource in listed_resources:
                permission = self._may_role_do_all(role, {action: (resource,)})
                is_allowed = permission in _NOT_REFUSED
                if not is_allowed and not (
                    permission == "denied" and self._may_secret_allow(action, resource)
                ):
                    refused.setdefault(permission, []).append(resource)
        return refused

    def _may_secret_allow(self, action: str, arn: str) -> bool:
        """Whether the policy of a secret may allow what the role's do not; it may if it cannot be
        read, or is of another Region.
        """
        if action != READ_VALUE:
            return False
        secrets = self._open("secretsmanager")
        if secrets.meta.region_name != arn_region(arn):
            return True
        with noted_errors(
            self.problems.add,
            f"The policy of the secret {arn.rpartition(':')[2]} could not be read",
            "secretsmanager:GetResourcePolicy",
        ):
            policy = secrets.get_resource_policy(SecretId=arn).get("ResourcePolicy") or "{}"
            return _has_allowing_statement(policy, action)
        return True

    def _read_may_repository_allow(self, image: EcrImage) -> bool:
        """Whether the policy of a repository may allow the pull; it may if it cannot be read."""
        with noted_errors(
            self.problems.add,
            f"The policy of the repository {image.repository} could not be read",
            "ecr:GetRepositoryPolicy",
        ):
            opened = self._open_registry(image)
            return _may_allow_pull(opened, image.account, image.region, image.repository)
        return True

    def _open_registry(self, image: EcrImage) -> OpenClient:
        """The clients of an image's Region, if they can be had; else those of the account."""
        is_here = self._open("ecr").meta.region_name == image.region
        if is_here or self._open_region is None:
            return self._open
        return self._open_region(image.region)

    def _read_is_image_missing(self, image: EcrImage) -> bool:
        """Whether an image is certainly not there, as far as the rules that would bring it can be
        read.
        """
        is_stored = None
        with noted_errors(
            self.problems.add,
            f"It is unknown whether the image {image.name_without_registry} is in ECR",
            "ecr:DescribeImages",
        ):
            is_stored = is_in_registry(self._open_registry(image), image)
        if is_stored is not False:
            return False
        with noted_errors(
            self.problems.add,
            f"It is unknown whether a pull brings the image {image.name_without_registry} into ECR",
            "ecr:DescribePullThroughCacheRules",
        ):
            return not is_pulled_through(self._open_registry(image), image)
        return True

    def missing_image(self, name: str, account: str | None) -> EcrImage | None:
        """The image with this name if the account's registry lacks it; None if it is there, in
        another registry, or unknown.
        """
        image = ecr_image(name)
        if image is None or image.account != account or not self._is_missing(image):
            return None
        return image

    def _answer_if_role_deleted(self, role: str) -> Permission | None:
        """The answer "no role" for one that was deleted; else None. Raises boto3's errors."""
        return "no role" if self._policies_of(role) is None else None

    def _may_role_do_all(self, role: str, wanted: _Resources) -> Permission:
        """Whether a role may do all actions: its policies and its boundary, and what the
        simulation says of the organization's policies. Raises boto3's errors.
        """
        documents = self._policies_of(role)
        if documents is None:
            return "no role"
        verdict = _answer_of_statements(documents, wanted)
        if verdict == "denied by policy":
            return verdict
        if verdict == "unknown":
            self.problems.add(f"The policies of the role {role} have {_UNEVALUATED}.")
        if self._is_beyond_boundary(role, wanted):
            return "denied by boundary"
        if verdict == "denied":
            return verdict
        return verdict if self._is_certainly_within_limits(role, wanted) else "unknown"

    def _is_beyond_boundary(self, role: str, wanted: _Resources) -> bool:
        """Whether the permissions boundary of a role certainly refuses one of the actions."""
        described = self._boundary_of(role)
        if described is None or not described.boundary:
            return False
        return _answer_of_statements(described.documents, wanted) in (
            "denied",
            "denied by policy",
        )

    def _is_certainly_within_limits(self, role: str, wanted: _Resources) -> bool:
        """Whether the boundary of a role certainly lets the actions pass, and the organization's
        policies as far as they can be simulated.
        """
        described = self._boundary_of(role)
        if described is None:
            return False
        if described.boundary and _answer_of_statements(described.documents, wanted) == "unknown":
            self.problems.add(
                f"The permissions boundary of the role {role} ({described.boundary}) has "
                f"{_UNEVALUATED}."
            )
            return False
        asked = tuple((action, tuple(sorted(resources))) for action, resources in wanted.items())
        if self._is_refused_by_organization(described.arn, asked):
            self.problems.add(
                f"IAM's simulation says that a policy of the organization refuses "
                f"{listed(wanted)} to the role {role}. The simulation does not have all "
                "values that conditions compare, so look at the policies of the organization."
            )
            return False
        return True

    def _read_log_group(self, name: str) -> LogGroupState:
        group_class: str | None = STANDARD
        exists: bool | None = None
        with noted_errors(
            self.problems.add,
            "The classes of log groups could not be read",
            "logs:DescribeLogGroups",
        ):
            group_class = log_group_class(self._open, name)
            exists = group_class is not None
        if group_class != STANDARD:  # or there is none
            return LogGroupState(exists=exists, group_class=group_class or STANDARD)
        what = "The subscriptions of log groups could not be read"
        with noted_errors(self.problems.add, what, "logs:DescribeSubscriptionFilters"):
            subscriptions = subscription_filters(self._open("logs"), name)
            forwarded = []
            for subscription in subscriptions:
                if passes_reports(subscription.get("filterPattern")):
                    forwarded.append(_resource_name(subscription["destinationArn"]))
            for document, excluded in self._account_subscriptions or ():
                if f'"{name}"' not in excluded and passes_reports(document.get("FilterPattern")):
                    forwarded.append(_resource_name(str(document.get("DestinationArn"))))
            if forwarded or self._account_subscriptions is not None:
                return LogGroupState(exists=True, forwarded_to=tuple(dict.fromkeys(forwarded)))
        return LogGroupState(exists=exists, is_forwarding_known=False)

    @cached_property
    def _account_subscriptions(self) -> tuple[tuple[Mapping[str, object], str], ...] | None:
        """The account-wide subscriptions, each with the criteria that exclude log groups; None:
        unknown.
        """
        what = "The account-wide subscriptions could not be read"
        with noted_errors(self.problems.add, what, "logs:DescribeAccountPolicies"):
            subscriptions = []
            for policy in account_subscriptions(self._open("logs")):
                document = mapping_or_empty(json.loads(policy["policyDocument"]))
                subscriptions.append((document, policy.get("selectionCriteria", "")))
            return tuple(subscriptions)
        return None

    def _read_policies(self, role: str) -> Policies | None:
        """All policies of a role; None if there is no such role."""
        iam = self._open("iam")
        try:
            documents = [*_inline_policies(iam, role).values()]
            operation = "list_attached_role_policies"
            for attached in read_items(iam, operation, "AttachedPolicies", RoleName=role):
                documents.append(self._attached_policy(attached["PolicyArn"]))
        except iam.exceptions.NoSuchEntityException:
            return None
        return tuple(documents)

    def denial_of_role(
        self, permission: Permission | None, kind: RoleKind, role: str, what: str, remedy: str = ""
    ) -> RoleDenial | None:
        """Why a role is refused ``what``; None if it is not certain to be. ``remedy`` is for one
        whose policies lack a statement.
        """
        named = f"{kind} {role}"
        if permission == "denied by policy":
            return RoleDenial(
                text=f"A policy of the {named} denies {what}.",
                remedy="Change the statement that denies it: no other policy outweighs it.",
            )
        if permission == "denied by boundary":
            described = self._boundary_of(role)
            name = "" if described is None else f" {described.boundary}"
            return RoleDenial(
                text=f"The permissions boundary{name} of the {named} does not allow {what}.",
                remedy="Allow it in the boundary, or take another role: no policy of the role "
                "outweighs its boundary.",
            )
        if permission == "denied":
            return RoleDenial(text=f"The {named} does not allow {what}.", remedy=remedy)
        return None

    def _read_boundary(self, role: str) -> _RoleWithBoundary | None:
        """A role that exists; None, and a sentence, if its boundary could not be read."""
        if "boundaries" in self._unread:
            return None
        what = "It is unknown whether permissions boundaries limit the roles"
        with noted_errors(
            self.problems.add, what, "iam:GetRole, iam:GetPolicy and iam:GetPolicyVersion"
        ):
            return self._described_role(role)
        self._unread.add("boundaries")
        return None

    def _describe_role(self, role: str) -> _RoleWithBoundary:
        """A role that exists, with its boundary. Raises boto3's errors."""
        described = self._open("iam").get_role(RoleName=role)["Role"]
        arn = str(described["Arn"])
        boundary = text_or_none(
            mapping_or_empty(described.get("PermissionsBoundary")).get(_BOUNDARY_ARN)
        )
        if boundary is None:
            return _RoleWithBoundary(arn=arn)
        return _RoleWithBoundary(
            arn=arn,
            boundary=boundary.rpartition("/")[2],
            documents=(self._managed_policy(boundary),),
        )

    def _simulate_organization(
        self, role_arn: str, asked: tuple[tuple[str, tuple[str, ...]], ...]
    ) -> bool:
        """Whether IAM's simulation says that the organization's policies refuse a role these
        actions on their resources. False, and a sentence, if IAM cannot be asked.
        """
        if "organization" in self._unread:
            return False
        regions = known_values(arn_region(one) for _, resources in asked for one in resources)
        what = "It is unknown whether a policy of the organization refuses what the roles allow"
        with noted_errors(self.problems.add, what, "iam:SimulatePrincipalPolicy"):
            for action, resources in asked:
                answer = self._open("iam").simulate_principal_policy(
                    PolicySourceArn=role_arn,
                    ActionNames=[action],
                    ResourceArns=[*map(_example_resource, resources)],
                    ContextEntries=[
                        {
                            "ContextKeyName": "aws:RequestedRegion",
                            "ContextKeyValues": [region],
                            "ContextKeyType": "string",
                        }
                        for region in regions[:1]
                    ],
                )
                for result in answer["EvaluationResults"]:
                    decision = mapping_or_empty(result.get("OrganizationsDecisionDetail"))
                    if decision.get("AllowedByOrganizations") is False:
                        return True
            return False
        self._unread.add("organization")
        return False

    def _attached_policy(self, arn: str) -> Mapping[str, object]:
        """A policy that was listed, or its next version, if that was replaced meanwhile; empty if
        the policy was deleted, which no role can have any more.
        """
        for _ in range(2):
            with suppress(self._open("iam").exceptions.NoSuchEntityException):
                return self._managed_policy(arn)
        return {}

    def _read_managed_policy(self, arn: str) -> Mapping[str, object]:
        iam = self._open("iam")
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        return mapping_or_empty(
            iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        )


def _answer_of_statements(documents: Policies, wanted: _Resources) -> Permission:
    """Whether the statements allow the actions on all of their resources; unknown if that
    depends on a condition or a variable.
    """
    verdict: Permission = "allowed"
    for action, resources in wanted.items():
        for resource in resources:
            one = statement_effects(
                documents, PolicyQuestion(action=action, resource=resource)
            ).verdict
            if one == "denied by policy":
                return one
            if one == "denied" or verdict == "allowed":
                verdict = one
    return verdict


def _example_resource(resource: str) -> str:
    """The ARN of one of the resources that a pattern names."""
    return resource if resource == "*" else resource.replace("*", "x")


def _resource_name(arn: str) -> str:
    """The name of a function, a data stream or a destination."""
    resource = arn_part(arn, 5) or arn
    return resource.replace("/", ":").rpartition(":")[2]


def _may_allow_pull(open_client: OpenClient, account: str, region: str, repository: str) -> bool:
    """Whether the policy of a repository, which may allow a pull that the role's own do not, may
    allow this one; of another Region, it may.

    Raises boto3's errors.
    """
    ecr = open_client("ecr")
    if ecr.meta.region_name != region:
        return True
    try:
        answer = ecr.get_repository_policy(registryId=account, repositoryName=repository)
    except (
        ecr.exceptions.RepositoryPolicyNotFoundException,
        ecr.exceptions.RepositoryNotFoundException,
    ):
        return False
    return _has_allowing_statement(answer["policyText"], "ecr:BatchGetImage")


def _has_allowing_statement(policy: str, action: str) -> bool:
    """Whether a statement of a resource's policy allows an action, perhaps to others."""
    return any(
        statement.get("Effect") == "Allow" and is_about_action(statement, action)
        for statement in statements_of(mapping_or_empty(json.loads(policy)))
    )

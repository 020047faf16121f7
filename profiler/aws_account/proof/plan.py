"""What the proofs of tasks and of jobs have in common: their programs, their log group, the
forwarder's stack, and the rights for these.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Literal

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.clusters_and_log_groups import account_subscriptions, passes_reports
from profiler.aws_account.forwarder_stack import ForwarderStack
from profiler.aws_account.setup.group_filters import FilterDelivery, delivery_of_stack_values
from profiler.core.commands_to_copy import command_line
from profiler.core.json_fields import mapping_or_empty
from profiler.core.notice_channels import has_channel
from profiler.core.text import split_names
from profiler.record.family_identity import PROOF_FAMILY, matches_any
from profiler.sizing.fargate_sizes import Size
from profiler.sizing.prices import X86, PriceOverrides, fargate_prices

SCENARIOS = ("success", "failure", "memory")
ON_INSTANCE = "instance"  # a success that the monitor of its instance reports
GROUP_PREFIX = f"/ecs/{PROOF_FAMILY}-"
PYTHON = "/opt/task-profiler/bin/python3"  # of the monitor's image
VCPU = 1
FARGATE_MB = 2048  # the smallest task with a whole vCPU
_BILLED_MINUTES = 2
# The actions of every plan, in addition to those of its proof.
SHARED_PLAN_RIGHTS = (
    "cloudformation:DescribeStacks",
    "iam:GetRole",
    "iam:GetRolePolicy",
    "iam:ListAttachedRolePolicies",
    "iam:ListRolePolicies",
    "iam:SimulatePrincipalPolicy",
    "logs:DescribeAccountPolicies",
)
SHARED_RIGHTS = (
    "ecs:DescribeTasks",
    "iam:PassRole",  # to hand the task's roles over
    "logs:CreateLogGroup",
    "logs:DeleteLogGroup",
    "logs:DeleteSubscriptionFilter",
    "logs:DescribeLogGroups",
    "logs:DescribeSubscriptionFilters",
    "logs:FilterLogEvents",
    "logs:PutSubscriptionFilter",
    "sqs:GetQueueAttributes",
)


RunKind = Literal["tasks", "jobs"]


class ProofPlan(Struct, frozen=True, kw_only=True):
    """All that the proof does.

    ``container`` is the batch's, in streams with this prefix; the program ``memory`` has
    ``memory_mb``. ``usd`` None: the price is unknown, or EC2's. ``capacity_remedy``: what to do if
    a program found no place. ``unlogged_notices``: why no line tells of notices, if none does.
    ``reads_documents``: a search cluster is named.
    """

    kind: RunKind
    id: str
    region: str
    stack: ForwarderStack
    scenarios: tuple[str, ...]
    container: str
    stream_prefix: str
    memory_mb: int
    delivery: FilterDelivery | None
    problems: tuple[str, ...]
    usd: float | None
    network_mode: str
    is_on_fargate: bool
    capacity_remedy: str
    unlogged_notices: str = ""
    reads_documents: bool = False

    @property
    def log_group_name(self) -> str:
        return f"{GROUP_PREFIX}{self.id}"

    @property
    def resource_name(self) -> str:
        """The name of what is made for the time of the proof."""
        return f"{PROOF_FAMILY}-{self.id}"

    @property
    def has_stack(self) -> bool:
        return self.stack.possible_action != "absent"

    @property
    def why_no_stack_checks(self) -> str:
        """Why nothing that the functions do is checked."""
        return f"no stack {self.stack.name}; {command_line('setup', 'stack')} deploys it"

    @property
    def indexes(self) -> bool:
        return bool(self.stack.parameters.get("ElasticsearchUrl"))

    @property
    def why_notices_are_unlogged(self) -> str:
        """The reason why no line says whether a notice was posted; empty if a line says it."""
        return self.unlogged_notices if self.has_stack else self.why_no_stack_checks

    def notifies_of(self, scenario: str) -> bool:
        """Whether the stack has a channel for the end of this task, and settings that select it."""
        parameters = self.stack.parameters
        if not has_channel(parameters):
            return False
        subjects = parameters.get("Notify", "all").split(",")
        status = "failure" if scenario in ("failure", "memory") else "success"
        if "all" not in subjects and status not in subjects:
            return False
        return matches_any(PROOF_FAMILY, split_names(parameters.get("NotifyFamilies", "")))

    def what_stays_text(self) -> str:
        """What is there afterwards."""
        if not self.has_stack:
            return "nothing"
        documents = f"{len(self.scenarios)} documents" if self.indexes else "no document"
        return (
            f"{documents} of the family {PROOF_FAMILY} (one killed, one failed), and two "
            f"notifications of failures, which name {PROOF_FAMILY}"
        )

    def last_document_members(self, rights: Iterable[str]) -> Mapping[str, object]:
        """The members with which each plan's document ends."""
        return {
            "stays": self.what_stays_text(),
            "problems": list(self.problems),
            "usd": self.usd,
            "rights": sorted({*rights, *SHARED_PLAN_RIGHTS, *SHARED_RIGHTS}),
        }


def witness_program() -> str:
    """The text of the program that a definition carries."""
    return files("profiler.aws_account.proof").joinpath("witness.py").read_text("utf-8")


def awslogs_configuration(group: str, region: str, prefix: str) -> Mapping[str, object]:
    """The log configuration of a container."""
    options = {
        "awslogs-group": group,
        "awslogs-region": region,
        "awslogs-stream-prefix": prefix,
    }
    return {"logDriver": "awslogs", "options": options}


def delivery_of_stack(stack: ForwarderStack, open_client: OpenClient) -> FilterDelivery | None:
    """The stack's delivery; None if an account-wide subscription delivers the lines already, or
    the stack takes none.
    """
    values = {"ElasticsearchUrl": "", "ForwardLogLines": "", "Ingestion": "", **stack.parameters}
    if "ForwardLogsFunctionName" not in stack.outputs:
        return None
    delivery = delivery_of_stack_values(values, stack)
    with aws_errors(
        "The account-wide subscriptions cannot be read", "logs:DescribeAccountPolicies"
    ):
        policies = account_subscriptions(open_client("logs"))
    for policy in policies:
        document = mapping_or_empty(json.loads(policy["policyDocument"]))
        is_own = document.get("DestinationArn") == delivery.destination_arn
        if is_own and passes_reports(document.get("FilterPattern")):
            return None
    return delivery


def estimated_fargate_usd(
    sizes: Iterable[Size], region: str, architecture: str | None
) -> float | None:
    """About what runs of these sizes cost on Fargate, each of two minutes."""
    known_prices = fargate_prices(region, architecture or X86, PriceOverrides())
    if known_prices is None:
        return None
    hours = _BILLED_MINUTES / 60
    usd = sum(known_prices.size_hour_price_usd(size.vcpu, size.memory_mb) for size in sizes)
    return round(usd * hours, 4)

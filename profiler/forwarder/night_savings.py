"""What other sizes of families would save in a month: what ``taskdef resize`` says of them.

The plan is that command's own: its windows of the runs, its rules, and what the account says. What
it needs is bounded. Where it does not suffice, or an answer is a part, there is no amount.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.account_starters import AccountStarterReader
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.family_circumstances import read_account
from profiler.aws_account.planned_family import PlannedFamily, planned_size_decisions
from profiler.aws_account.registered_definitions import TaskDefinitions, may_definition_exist
from profiler.aws_account.resize_plan import SizePlanner
from profiler.aws_account.revision_read_limit import BoundedReads
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known, sum_known
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.morning_digest import NightSaving
from profiler.forwarder.search_cluster.bulk_client import SearchCluster
from profiler.runs.past_runs.family_evidence import read_windows
from profiler.runs.past_runs.run_source import RunFilter, exact_patterns_of
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.search_setup.cluster_requests import Method, ServerResponse
from profiler.sizing.family_window import WindowSpan
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_limits import ResizePolicy
from profiler.task_definitions.definition_json import read_described

# Of a message: five families at few sizes need some thirty searches.
MAX_SEARCHES = 100
# A schedule is a call of its own.
MAX_CALLS = 500
_BAD_REQUEST = 400
_METHOD_NOT_ALLOWED = 405


class ReadBudget:
    """The time, the searches and the calls of AWS that a message may take.

    ``problem``: why it did not suffice. Who asks may have gone on without the answer.
    """

    def __init__(self, has_time: Callable[[], bool]) -> None:
        self._has_time = has_time
        self.searches = 0
        self.calls = 0
        self.problem: str | None = None

    def count_search(self) -> None:
        """Count a search. Raises TaskProfilerError if none is left."""
        self.searches += 1
        if self.searches > MAX_SEARCHES:
            self._raise_exhausted(f"it takes more than {MAX_SEARCHES} searches")
        self._check_time()

    def count_aws_call(self, **_event: object) -> None:
        """Count a call of AWS, as a handler of botocore's events. Raises TaskProfilerError if none
        is left.
        """
        self.calls += 1
        if self.calls > MAX_CALLS:
            self._raise_exhausted(f"it takes more than {MAX_CALLS} calls of AWS")
        self._check_time()

    def _check_time(self) -> None:
        if not self._has_time():
            self._raise_exhausted("the time of the function did not suffice")

    def _raise_exhausted(self, problem: str) -> NoReturn:
        self.problem = first_known(self.problem, problem)
        raise TaskProfilerError(problem)

    def clients_with_counted_calls(self, open_client: Callable[[str], AwsClient]) -> OpenClient:
        """Clients, each opened once, whose calls are counted."""
        clients: dict[str, AwsClient] = {}

        def opened(service: str, _region: str | None = None) -> AwsClient:
            if service not in clients:
                clients[service] = open_client(service)
                events = clients[service].meta.events
                events.register_first("before-call", self.count_aws_call)
                # Of each attempt.
                events.register_first("before-send", lambda **_event: self._check_time())
            return clients[service]

        return opened


class BudgetedSearchCluster(Struct, frozen=True, kw_only=True):
    """The cluster as the readers of past runs ask it."""

    cluster: SearchCluster
    budget: ReadBudget
    timeout_seconds: float

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Search. The function may not list indices. Raises TaskProfilerError."""
        if method != "POST" or not isinstance(body, dict):
            return ServerResponse(status=_METHOD_NOT_ALLOWED)
        self.budget.count_search()
        try:
            answer = self.cluster.request(path, body, self.timeout_seconds)
        except SearchClusterError as error:
            if error.closed_index is None:
                raise
            refusal = {"type": "index_closed_exception", "index": error.closed_index}
            return ServerResponse(status=_BAD_REQUEST, body={"error": refusal})
        return ServerResponse(status=200, body=answer)


def _skip_reason_for_target_role(
    target: ScheduledTarget, present: Mapping[str, object], new: Mapping[str, object], _arn: str
) -> str | None:
    """Why a family is left out to whose tasks a target would give a first tag: the command asks
    the target's role whether it may, and the function reads no roles.
    """
    before, after = target.tags_of_task(present), target.tags_of_task(new)
    is_first = bool(after) and not before and not target.is_of_job
    return "its role is not read here" if is_first else None


class NightSavingPlanner(Struct, frozen=True, kw_only=True, dict=True):
    """Plans the sizes of families, as ``taskdef resize FAMILY… --from`` does."""

    cluster: BudgetedSearchCluster
    prefix: str
    open_client: OpenClient
    on_problem: Callable[[str], object]
    now_ns: int

    def plan_saving(self, families: Sequence[str]) -> NightSaving:
        """What the plan saves; why it is not known, if something cannot be read as a whole."""
        asked = len(families)
        try:
            planned = self._plan_families(families)
        except TaskProfilerError as error:
            return NightSaving(asked=asked, problem=self.cluster.budget.problem or str(error))
        except (AttributeError, LookupError, TypeError, ValueError):
            # A proxy can answer anything. The message needs the plan least of all.
            problem = "an answer of AWS or of the search cluster is invalid"
            return NightSaving(asked=asked, problem=problem)
        if self.cluster.budget.problem:
            return NightSaving(asked=asked, problem=self.cluster.budget.problem)
        for family_plan in planned:
            if family_plan.action == "failed":
                return NightSaving(asked=asked, problem=" ".join(family_plan.notes))
        changes = planned_size_decisions(planned)
        return NightSaving(
            asked=asked,
            families=tuple(plan.family for plan in planned if plan.is_new_revision),
            usd_per_month=sum_known(*(change.saving_usd_per_month for change in changes)) or 0,
            mark=max((change.monthly_amount_mark for change in changes), default=""),
        )

    def _plan_families(self, families: Sequence[str]) -> list[PlannedFamily]:
        """The plans of the families that have a definition. Raises TaskProfilerError."""
        source = IndexedRuns(self.cluster, self.prefix)
        policy = ResizePolicy()
        span = WindowSpan(now_ns=self.now_ns, min_runs=policy.min_runs)
        selection = RunFilter(families=exact_patterns_of(families))
        windows = read_windows(source, selection, span)
        for sentence in source.completeness.sentences:
            raise TaskProfilerError(sentence)
        definitions = TaskDefinitions(self.open_client("ecs"))
        reads = BoundedReads(definitions.describe, reads_twice=False)
        of_services = definitions.families_of_services()
        plans = SizePlanner(
            runs=windows,
            policy=policy,
            price_overrides=PriceOverrides(),
            describe=reads.describe,
            account=replace(
                read_account(
                    self.open_client,
                    lambda: self._scheduled_targets,
                    lambda: of_services,
                    self.now_ns,
                ),
                machine_schedules=self._account_starters.machine_schedules,
                outer_states=self._account_starters.outer_states,
                refusal_of_tags=_skip_reason_for_target_role,
            ),
        )
        planned = []
        for family in families:
            try:
                document = read_described(reads.describe, family)
            except TaskProfilerError as error:
                if may_definition_exist(error):
                    raise
                continue
            planned.append(plans.plan_size(family, document))
        return planned

    @cached_property
    def _account_starters(self) -> AccountStarterReader:
        return AccountStarterReader(self.open_client, self.on_problem)

    @cached_property
    def _scheduled_targets(self) -> tuple[ScheduledTarget, ...]:
        """Raises TaskProfilerError."""
        return (
            *self._account_starters.scheduled_targets(),
            *self._account_starters.starting_states(),
        )

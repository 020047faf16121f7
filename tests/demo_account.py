"""An account after a bad night, on moto and a double of AWS Batch: the account of which the
examples for agents speak.

The newest run of the family nightly-etl was killed for memory, and one of its tasks runs. A job
waits in the queue ``nightly``.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from moto.moto_api import state_manager
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.record_model import encode
from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.fake_batch import FakeBatch
from tests.resize_account import ACCOUNT, BATCH, KILLED, LOG_GROUP, OLD, Account
from tests.run_sources import put_in_own_streams
from tests.runs import report
from tools.moto_server import fake_aws

FAMILY = "nightly-etl"
KILLED_RUN = "9f70bacb30634e8fb82f83239391318f"
LOG_LINE = "loading orders, 41 million rows"
_ROLE_PATH = "arn:aws:iam::123456789012:role"
# What moto does not know.
_ANSWERS: dict[str, Any] = {
    "LookupEvents": {"Events": []},
    "DescribeAccountPolicies": {"accountPolicies": []},
}


class DemoAccount:
    """Its commands find the past runs in the log groups, unless they name another source."""

    def __init__(self, account: Account, batch: FakeBatch, url: str) -> None:
        self._account = account
        self.batch = batch
        self._environment = account.aws.environment() | batch.environment()
        self._environment |= {
            "AWS_ENDPOINT_URL": url,
            "HOME": str(account.home),
            "XDG_DATA_HOME": str(account.home),
            "TASK_PROFILER_FROM": f"logs:{LOG_GROUP}",
        }

    def command(self, *words: str) -> CompletedProcess[str]:
        return run_here(self._environment, *words)

    def revisions(self) -> list[str]:
        """The ARNs of all revisions."""
        return list(self._account.ecs.list_task_definitions()["taskDefinitionArns"])

    def make(self) -> None:
        account = self._account
        account.aws.client("iam").create_role(RoleName="nightly", AssumeRolePolicyDocument="{}")
        for family in (FAMILY, "nightly-load"):
            account.family(family, taskRoleArn=f"{_ROLE_PATH}/nightly", networkMode="awsvpc")
            account.schedule(family, family)
            account.runs(family, 13)
        account.family("orders", containerDefinitions=[BATCH], networkMode="awsvpc")
        account.schedule("orders", "orders")
        account.put_reports(LOG_GROUP)
        self._put_killed_run()
        account.aws.start_task(FAMILY)
        self.batch.now_ms = time.time_ns() // 1_000_000 - 3_600_000
        self.batch.add_queue("nightly", "spot")
        self.batch.define("etl", 1, 2048)
        self.batch.submit("etl", "nightly", "etl")

    def _put_killed_run(self) -> None:
        """The newest run, with its log line."""
        account, stream = self._account, f"ecs/batch/{KILLED_RUN}"
        now_ns = time.time_ns()
        made = report(
            family=FAMILY,
            revision="1",
            task_id=KILLED_RUN,
            account_id=ACCOUNT,
            size=OLD,
            peak_mb=2040,
            log_group=LOG_GROUP,
            log_stream=stream,
            started_at=format_ms(now_ns - 600 * NS_PER_SECOND),
            finished_at=format_ms(now_ns - 10 * NS_PER_SECOND),
            **KILLED,
        )
        made = replace(made, time=format_ms(now_ns - 9 * NS_PER_SECOND))
        logs = account.aws.client("logs")
        put_in_own_streams(logs, LOG_GROUP, encode(made).decode())
        account.aws.create_log_stream(LOG_GROUP, stream)
        line = {"timestamp": (now_ns - 30 * NS_PER_SECOND) // NS_PER_MS, "message": LOG_LINE}
        logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=[line])
        account.put_ended(made.record)


@contextmanager
def demo_account(folder: Path) -> Iterator[DemoAccount]:
    with (
        fake_aws() as aws,
        AwsProxy(aws.url, answers=_ANSWERS) as proxy,
        FakeBatch() as batch,
    ):
        demo = DemoAccount(Account(aws, folder), batch, proxy.url)
        # A task runs on, however often it is described.
        state_manager.set_transition("ecs::task", {"progression": "manual", "times": 1_000_000})
        try:
            demo.make()
            yield demo
        finally:
            state_manager.unset_transition("ecs::task")

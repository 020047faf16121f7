"""``task-profiler setup proof`` whole in AWS's other partitions: what is asked of AWS, registered,
attached and printed has their ARNs and domains, and no row differs.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

from tests.batch_jobs import REGION as BATCH_REGION
from tests.job_proof_account import IMAGE, QUEUE, JobProofAccount, job_proof_account
from tests.proof_account import ProofAccount, proof_account
from tools.local_answers import answer_here

PLACES = pytest.mark.parametrize(
    ("region", "partition", "domain"),
    [
        ("cn-north-1", "aws-cn", "amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "amazonaws.com"),
    ],
)


def check_proven(account: ProofAccount | JobProofAccount, *words: str) -> str:
    """Prove it, and return all that was printed."""
    printed = ""
    for options in ((), ("--yes",), ("--yes", "--markdown", "--keep")):
        done = account.prove(*words, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout + done.stderr
    assert printed.count("differs") == 0
    assert "arn:aws:" not in printed
    return printed


def check_plan(plan: dict[str, Any], region: str, partition: str, domain: str) -> None:
    assert re.fullmatch(rf"\d+\.dkr\.ecr\.{region}\.{domain}/task-profiler:.+", plan["image"])
    assert plan["executionRole"].startswith(f"arn:{partition}:iam::")
    assert plan["problems"] == []
    # Fargate's prices in China are not in dollars.
    assert (plan["usd"] is None) is (partition == "aws-cn")


@pytest.mark.diagonal(1)
@PLACES
def test_tasks_prove_it_in_their_partition(
    region: str, partition: str, domain: str, tmp_path: Path
) -> None:
    with proof_account(tmp_path, region) as account:
        check_plan(json.loads(account.prove("--json").stdout), region, partition, domain)
        if partition == "aws-us-gov":  # whose price is not that of the played reports
            account.change = lambda task: _cost_as_there(task.streams["batch"])
        check_proven(account)
        asked = [unquote_plus(body.decode()) for _, body in account.proxy.bodies]
        assert {*re.findall(r"arn:([\w-]+):", "".join(asked))} == {partition}
        policies = [text for text in asked if "Action=PutRolePolicy" in text]
        assert len(policies) == 2  # of the two proofs
        assert all(f'"arn:{partition}:logs:{region}:' in policy for policy in policies)


def _cost_as_there(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        if line["type"] == "task.report":
            line["record"]["cost"]["usd"] = round((0.0486 + 2 * 0.0053) / 60, 8)


@pytest.mark.diagonal(1)
@PLACES
def test_jobs_prove_it_in_their_partition(
    region: str, partition: str, domain: str, tmp_path: Path
) -> None:
    """Batch's double is moved to the partition and the Region."""
    here = f"arn:aws:batch:{BATCH_REGION}:".encode()
    there = f"arn:{partition}:batch:{region}:".encode()
    asked: list[bytes] = []

    def answer_there(request: Any, body: bytes) -> Any:
        asked.append(body)
        status, headers, text = account.batch.answer(request, body.replace(there, here))
        return status, headers, text.replace(here, there)

    with job_proof_account(tmp_path, region) as account:
        answer_here(account.batch.url, answer_there)
        if partition == "aws-us-gov":
            account.change = lambda job: _cost_as_there(job.lines)
        queue = ("--queue", QUEUE)
        check_plan(json.loads(account.prove(*queue, "--json").stdout), region, partition, domain)
        check_proven(account, *queue, "--image", IMAGE)
        asked += [unquote_plus(body.decode()).encode() for _, body in account.proxy.bodies]
        assert {*re.findall(r"arn:([\w-]+):", b"".join(asked).decode())} == {partition}

"""``task-profiler notify`` for a task in each partition of AWS with a console on the internet."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run_here
from tests.task_events import EVENT

# https://docs.amazonaws.cn/en_us/aws/latest/userguide/endpoints-Beijing.html
# https://docs.aws.amazon.com/govcloud-us/latest/UserGuide/getting-started-sign-in.html


@pytest.mark.parametrize(
    ("partition", "region", "domain"),
    [
        ("aws", "us-west-2", "console.aws.amazon.com"),
        ("aws-cn", "cn-north-1", "console.amazonaws.cn"),
        ("aws-us-gov", "us-gov-west-1", "console.amazonaws-us-gov.com"),
        ("aws-iso", "us-iso-east-1", ""),  # has a console, but not there
    ],
)
def test_the_links_and_commands_of_a_notification_are_of_its_partition(
    partition: str, region: str, domain: str, tmp_path: Path
) -> None:
    text = json.dumps(EVENT).replace("arn:aws:", f"arn:{partition}:").replace("us-west-2", region)
    file = tmp_path / "stopped-task.json"
    file.write_text(text)
    done = run_here({}, "notify", str(file), "--json")
    assert done.returncode == 0, done.stderr
    sent: dict[str, Any] = json.loads(done.stdout)
    detail = sent["detail"]
    assert detail["taskArn"].startswith(f"arn:{partition}:ecs:{region}:")
    assert f"--region {region}" in detail["nextSteps"]
    links = detail.get("links", {})
    assert bool(links) is bool(domain)
    for address in links.values():
        assert address.startswith(f"https://{region}.{domain}/ecs/v2/clusters/jobs/")
    assert ("https://" in done.stdout) is bool(domain)

"""The user data with which instances of AWS Batch start their monitor: a MIME document whose script
passes every word as it is.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.aws_account.setup.batch_instances import InstanceUserData, role_policy
from profiler.core.errors import UsageError
from profiler.readers.docker.docker_api import SOCKET
from tests.user_data import script_of

REGISTRY = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
IMAGE = f"{REGISTRY}/task-profiler:0.1.0"
STUB = '#!/bin/bash\nprintf "%s\\0" "${0##*/}" "$@" >>"$CALLS"\n'


def user_data(image: str = IMAGE, **values: str) -> InstanceUserData:
    return InstanceUserData(image=image, region="eu-west-1", settings=values)


def run_script(data: InstanceUserData, folder: Path) -> list[list[str]]:
    """The commands of Docker and systemd when the script runs, and then the service."""
    shutil.rmtree(folder, ignore_errors=True)
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for name in ("docker", "systemctl", "yum"):
        (programs / name).write_text(STUB)
        (programs / name).chmod(0o755)
    script = script_of(data.user_data_document())
    for place in ("/usr/local/libexec", "/etc/systemd/system", "/run/task-profiler-monitor"):
        (folder / place[1:]).mkdir(parents=True)
        script = script.replace(place, f"{folder}{place}")
    script = script.replace(" /var/lib/task-profiler\n", "\n")
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(folder / "calls")}
    subprocess.run(["bash", "-e", "-c", script], env=environment, check=True)
    service = f"{folder}/usr/local/libexec/task-profiler-monitor"
    subprocess.run([service], env=environment, check=True)
    calls: list[list[str]] = []
    for word in (folder / "calls").read_text().split("\0")[:-1]:
        if word in ("docker", "systemctl", "yum"):
            calls.append([])
        calls[-1].append(word)
    return calls


def test_the_instance_starts_the_monitor_without_waiting_for_it(tmp_path: Path) -> None:
    reload, enable, install, remove, run = run_script(user_data(), tmp_path)
    assert reload == ["systemctl", "daemon-reload"]
    assert enable == ["systemctl", "enable", "--now", "--no-block", "task-profiler-monitor.service"]
    assert install[-1] == "amazon-ecr-credential-helper"
    assert remove == ["docker", "rm", "--force", "task-profiler-monitor"]
    assert run[:2] == ["docker", "run"]
    assert run[-3:] == ["--", IMAGE, "monitor"]
    assert "--env=TASK_PROFILER_SCOPE=instance" in run
    assert not [word for word in run if "privileged" in word or "pid=" in word]
    config = (tmp_path / "run/task-profiler-monitor/config.json").read_text()
    assert json.loads(config) == {"credHelpers": {REGISTRY: "ecr-login"}}


def test_it_has_what_the_definition_of_the_service_has(tmp_path: Path) -> None:
    *_, run = run_script(user_data(), tmp_path)
    definition = json.loads(
        (Path(__file__).parents[4] / "taskdef" / "instance-monitor.json").read_text()
    )
    (container,) = definition["containerDefinitions"]
    sources = {one["name"]: one["host"]["sourcePath"] for one in definition["volumes"]}
    for mount in container["mountPoints"]:
        mode = ":ro" if mount.get("readOnly") else ""
        assert f"--volume={sources[mount['sourceVolume']]}:{mount['containerPath']}{mode}" in run
    assert {"--network=host", "--user=0", "--cap-drop=ALL", "--read-only"} <= {*run}
    assert str(SOCKET).startswith("/var/run/")
    assert "--oom-score-adj=1000" in run  # the monitor is killed before a job


def test_an_image_of_another_registry_needs_no_sign_in(tmp_path: Path) -> None:
    calls = run_script(user_data("registry.example.com/team/task-profiler:1"), tmp_path)
    assert [call[0] for call in calls] == ["systemctl", "systemctl", "docker", "docker"]


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=WORDS, image=WORDS.filter(str.strip))
def test_every_word_arrives_as_it_is(value: str, image: str, tmp_path: Path) -> None:
    *_, run = run_script(user_data(image, TASK_PROFILER_FAMILIES=value), tmp_path / "run")
    assert f"--env=TASK_PROFILER_FAMILIES={value}" in run
    assert run[-2:] == [image, "monitor"]


@pytest.mark.parametrize(
    "value",
    [
        "$(touch /tmp/x)",
        "`id`",
        "'; rm -rf / #",
        '"; reboot; "',
        "\\",
        "END_OF_START",
        "--==TASK-PROFILER==--",
        "%h $HOME",
        "a b*?[c]",
    ],
)
def test_no_word_is_code(value: str, tmp_path: Path) -> None:
    *_, run = run_script(user_data(TASK_PROFILER_FAMILIES=value), tmp_path)
    assert f"--env=TASK_PROFILER_FAMILIES={value}" in run


@pytest.mark.parametrize("value", ["a\nEND_OF_START\nreboot", "ä", "\0", "a\rb", "x\u2028y"])
def test_what_could_end_a_line_is_refused(value: str) -> None:
    for data in (user_data(TASK_PROFILER_FAMILIES=value), user_data(f"image{value}")):
        with pytest.raises(UsageError, match="cannot have"):
            data.user_data_document()


def test_more_than_ec2_takes_is_refused() -> None:
    with pytest.raises(UsageError, match="EC2 allows 16,384"):
        user_data(TASK_PROFILER_FAMILIES="x" * 14_000).user_data_document()


def test_the_role_may_write_into_the_groups_of_jobs_and_pull_the_image() -> None:
    policy: Any = role_policy(
        IMAGE, ["/aws/batch/job", "/own"], region="eu-west-1", partition="aws"
    )
    logs, pull, sign_in = policy["Statement"]
    place = "arn:aws:logs:eu-west-1:111122223333:log-group:"
    assert logs["Resource"] == [f"{place}/aws/batch/job:*", f"{place}/own:*"]
    assert "logs:PutLogEvents" in logs["Action"]
    assert pull["Resource"] == ["arn:aws:ecr:eu-west-1:111122223333:repository/task-profiler"]
    assert sign_in["Resource"] == ["*"]
    policy = role_policy("x/y:1", ["/own"], region="cn-north-1", partition="aws-cn")
    (only,) = policy["Statement"]
    assert only["Resource"] == ["arn:aws-cn:logs:cn-north-1:*:log-group:/own:*"]

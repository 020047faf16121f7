"""``task-profiler doctor`` against a task's endpoint and an emulator of CloudWatch Logs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.aws import fake_aws
from tests.command_line import run_here
from tests.task_endpoint import TASK_ID, Task, served

GROUP, STREAM = "/ecs/doctor", f"ecs/batch/{TASK_ID}"


def doctor(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_here({"PATH": os.environ["PATH"], **environment}, "doctor", *options)


def doctor_process(**environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "profiler", "doctor", "--json", "--seconds", "5"]
    variables = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(words, env=variables, capture_output=True, check=False, text=True, timeout=60)


def by_topic(output: str) -> dict[str, Any]:
    findings = [json.loads(line) for line in output.splitlines()]
    return {finding["topic"]: finding for finding in findings}


def test_a_served_task_is_examined_and_nothing_is_written() -> None:
    settings = {"TASK_PROFILER_LOG_GROUP": GROUP, "TASK_PROFILER_LOG_STREAM": STREAM}
    with served(Task(2)) as task, fake_aws() as aws:
        settings |= {"ECS_CONTAINER_METADATA_URI_V4": task.address, **aws.environment()}
        aws.create_log_group(GROUP)
        refused = doctor_process(**settings)
        aws.create_log_stream(GROUP, STREAM)
        allowed = doctor_process(**settings)
        assert aws.events(GROUP, STREAM) == ()
    assert refused.returncode == 1, refused.stderr
    missing = by_topic(refused.stdout)["log stream"]
    assert (missing["level"], "does not exist" in missing["text"]) == ("problem", True)
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    found = by_topic(allowed.stdout)
    assert found["log stream"]["text"] == f"The monitor may write the report to {GROUP}, stream {STREAM}."
    assert found["stats"]["level"] == "ok"
    assert ("visible size" in found) is (os.cpu_count() != 1)  # the task's size is one vCPU


def test_outside_of_ecs_it_says_so_in_plain_words_and_without_colours() -> None:
    told = doctor()
    assert told.returncode == 0
    assert told.stdout.startswith("note     task metadata")
    assert "\x1b" not in told.stdout


def test_a_task_definition_and_a_template_are_examined_before_the_first_run(tmp_path: Path) -> None:
    batch = {"name": "etl", "image": "etl:26", "memory": 256}
    file = tmp_path / "nightly etl.json"
    file.write_text(json.dumps({"family": "etl", "containerDefinitions": [batch]}))
    examined = doctor("--task", str(file))
    assert examined.returncode == 1
    assert f"Add it: task-profiler taskdef add-monitor '{file}' --in-place." in examined.stdout
    image = "111122223333.dkr.ecr.us-east-1.amazonaws.com/task-profiler:1"
    add = ["taskdef", "add-monitor", str(file), "--region", "us-east-1", "--image", image, "--in-place"]
    assert run_here({}, *add).returncode == 0
    again = doctor(str(file))
    assert again.returncode == 0, again.stdout
    assert "PROBLEM" not in again.stdout

    template = tmp_path / "stack.json"
    task = {"ContainerDefinitions": [{"Name": "etl", "Image": {"Ref": "Image"}}]}
    template.write_text(json.dumps({"Resources": {"Task": {"Type": "AWS::ECS::TaskDefinition", "Properties": task}}}))
    assert "There is no monitor" in doctor("--task", str(template)).stdout


def test_the_latest_revision_of_a_family_is_examined() -> None:
    with fake_aws() as aws:
        batch = {"name": "etl", "image": "etl:26", "memory": 256}
        aws.client("ecs").register_task_definition(family="etl", containerDefinitions=[batch])
        examined = doctor("--family", "etl", **aws.environment())
        missing = doctor("--family", "other", **aws.environment())
    assert "Add it: task-profiler taskdef add-monitor --family etl --register." in examined.stdout
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "'other' could not be read" in missing.stderr


def test_checks_that_contradict_each_other_are_refused() -> None:
    for words in (["--task", "a.json", "--deployed", "tp"], ["--elasticsearch", "http://localhost:9200"]):
        refused = doctor(*words)
        assert (refused.returncode, refused.stdout) == (2, "")

"""``task-profiler doctor`` as a process, beside a served task and a played CloudWatch Logs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.endpoint import TASK_ID, Task, serve
from tests.aws import fake_aws

GROUP, STREAM = "/ecs/doctor", f"ecs/batch/{TASK_ID}"


def doctor(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "profiler", "doctor", *options],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def by_topic(output: str) -> dict[str, Any]:
    findings = [json.loads(line) for line in output.splitlines()]
    return {finding["topic"]: finding for finding in findings}


def test_a_served_task_is_examined_and_nothing_is_written() -> None:
    server = serve(Task(2))
    settings = {
        "ECS_CONTAINER_METADATA_URI_V4": f"http://127.0.0.1:{server.server_address[1]}/v4/own",
        "TASK_PROFILER_LOG_GROUP": GROUP,
        "TASK_PROFILER_LOG_STREAM": STREAM,
    }
    try:
        with fake_aws() as aws:
            aws.create_log_group(GROUP)
            refused = doctor("--json", "--seconds", "5", **settings, **aws.environment())
            aws.create_log_stream(GROUP, STREAM)
            allowed = doctor("--json", "--seconds", "5", **settings, **aws.environment())
            assert aws.events(GROUP, STREAM) == ()
    finally:
        server.shutdown()
        server.server_close()
    assert refused.returncode == 1, refused.stderr
    assert by_topic(refused.stdout)["log stream"]["level"] == "problem"
    assert "does not exist" in by_topic(refused.stdout)["log stream"]["text"]
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    assert by_topic(allowed.stdout)["log stream"]["text"] == (
        f"The monitor may write the report to {GROUP}, stream {STREAM}."
    )
    assert by_topic(allowed.stdout)["stats"]["level"] == "ok"


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
    add = [sys.executable, "-m", "profiler", "taskdef", "add-monitor", str(file), "--region", "us-east-1", "--in-place"]
    subprocess.run(add, check=True, capture_output=True)
    again = doctor("--task", str(file))
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

"""The harness itself, without the product: what it plays must be what ECS, Docker and the kernel do."""

import contextlib
import http
import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.aws import FakeAws
from tests.e2e.engine import Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.kernel import KernelAccounting
from tests.e2e.specs import BATCH, MONITOR, ContainerSpec, TaskSpec, batch_container
from tests.e2e.task import PAUSE, Task
from tests.waiting import WaitTimeoutError, wait_until

pytestmark = pytest.mark.e2e

RunTask = Callable[[TaskSpec], Task]

_MIB = 1024 * 1024
_END_SECONDS = 30.0


def stand_in(*load: str, depends_on: tuple[str, ...] = (BATCH,), stop_timeout_seconds: int = 30) -> ContainerSpec:
    """Describe a container in the monitor's place that by default obeys SIGTERM at once."""
    return ContainerSpec(
        name=MONITOR,
        image=BASE_IMAGE,
        command=("python3", "-B", "/batch_load.py", *(load or ("--until-term",))),
        essential=False,
        depends_on=depends_on,
        stop_timeout_seconds=stop_timeout_seconds,
        read_only_mounts=batch_container().read_only_mounts,
    )


def get(task: Task, path: str, name: str = BATCH) -> Any:
    """Ask the metadata endpoint as one of the task's containers would."""
    url = task[name].placement.environment["ECS_CONTAINER_METADATA_URI_V4"]
    answer = requests.get(url + path, timeout=5)
    answer.raise_for_status()
    return answer.json()


def batch_stats(task: Task) -> dict[str, Any]:
    """Return the batch's entry of `/task/stats`."""
    entry: dict[str, Any] = get(task, "/task/stats")[task[BATCH].facts.docker_id]
    return entry


def batch_metadata(task: Task) -> dict[str, Any]:
    """Return the batch's entry of `/task`."""
    containers: list[dict[str, Any]] = get(task, "/task")["Containers"]
    return next(one for one in containers if one["Name"] == BATCH)


def stop_when_ready(task: Task) -> None:
    """Stop a task whose containers react to SIGTERM by now (the first process of a container ignores it before)."""
    for name in (BATCH, MONITOR):
        task[name].wait_output("ready", 10)
    task.stop()


def test_base_image_runs_python(run_task: RunTask) -> None:
    """A container of the base image ends with the code and the output of its program."""
    task = run_task(TaskSpec(containers=(batch_container("--exit-code", "7"),)))
    assert task[BATCH].wait_stopped(_END_SECONDS).exit_code == 7
    assert task[BATCH].logs()[0].splitlines()[1].startswith("done, held 0 bytes")


def test_stats_are_dockers_and_move(run_task: RunTask) -> None:
    """Stats have the shape of Docker's documents, and a new one comes about once a second."""
    task = run_task(TaskSpec(containers=(batch_container("--memory-mib", "100", "--until-term"),)))
    first = wait_until(lambda: batch_stats(task), 10, "a first sample")
    second = wait_until(lambda: (new := batch_stats(task))["read"] != first["read"] and new, 5, "another sample")
    assert second["preread"] == first["read"]
    assert second["cpu_stats"]["cpu_usage"]["total_usage"] >= first["cpu_stats"]["cpu_usage"]["total_usage"] > 0
    assert 100 * _MIB < second["memory_stats"]["usage"] < 200 * _MIB
    assert second["memory_stats"]["limit"] == 512 * _MIB
    assert {"total_inactive_file", "inactive_file"} & second["memory_stats"]["stats"].keys()
    assert second["id"] == task[BATCH].facts.docker_id


def test_metadata_of_a_running_task(run_task: RunTask) -> None:
    """Metadata has what the agent gives while a task runs, and nothing of its end."""
    batch = batch_container("--until-term", cpus=0.5, log_group="/ecs/nightly/etl")
    task = run_task(TaskSpec(containers=(batch,), limit_vcpu=1, limit_memory_mib=1024))
    document = get(task, "/task")
    assert (document["DesiredStatus"], document["KnownStatus"]) == ("RUNNING", "RUNNING")
    assert document["Limits"] == {"CPU": 1, "Memory": 1024}
    assert "ExecutionStoppedAt" not in document
    assert batch_metadata(task)["Limits"] == {"CPU": 512, "Memory": 512}
    assert batch_metadata(task)["LogOptions"] == {
        "awslogs-group": "/ecs/nightly/etl",
        "awslogs-region": "us-east-1",
        "awslogs-stream": f"ecs/batch/{document['TaskARN'].rpartition('/')[2]}",
    }
    assert not {"ExitCode", "FinishedAt"} & batch_metadata(task).keys()
    assert get(task, "")["DockerId"] == task[BATCH].facts.docker_id
    assert task.endpoint.count("") == 1


def test_requests_share_a_connection(run_task: RunTask) -> None:
    """The endpoint keeps connections open, answers 404 to what it does not know, and counts requests."""
    task = run_task(TaskSpec(containers=(batch_container("--until-term"),)))
    _, _, host, path = task[BATCH].placement.environment["ECS_CONTAINER_METADATA_URI_V4"].split("/", 3)
    with contextlib.closing(http.client.HTTPConnection(host, timeout=5)) as connection:
        for target, status in (("/task", 200), ("/task/stats", 200), ("/nothing", 404)):
            connection.request("GET", f"/{path}{target}")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
            assert not answer.will_close
    assert [seen.path for seen in task.endpoint.requests] == ["/task", "/task/stats", "/nothing"]


def test_end_of_the_batch(run_task: RunTask) -> None:
    """After the exit of the essential batch: empty stats, STOPPED with exit code and time, a stopping task."""
    task = run_task(TaskSpec(containers=(batch_container("--idle-seconds", "2", "--exit-code", "3"), stand_in())))
    wait_until(lambda: batch_stats(task), 10, "a first sample")
    task.wait_stopped(_END_SECONDS)
    assert batch_stats(task) == {}
    ended = batch_metadata(task)
    assert (ended["KnownStatus"], ended["ExitCode"]) == ("STOPPED", 3)
    assert ended["StartedAt"] < ended["FinishedAt"]
    assert get(task, "/task")["DesiredStatus"] == "STOPPED"
    assert "ExecutionStoppedAt" in get(task, "/task")
    order = [(event.container, event.what) for event in task.events[2:]]
    assert order == [(BATCH, "stopped"), (MONITOR, "signalled"), (MONITOR, "stopped")]
    assert task[MONITOR].facts.exit_code == 143


def test_memory_kill(run_task: RunTask) -> None:
    """A batch that outgrows its limit is killed by the kernel and ends with 137."""
    task = run_task(TaskSpec(containers=(batch_container("--oom", memory_mib=64),)))
    facts = task[BATCH].wait_stopped(_END_SECONDS)
    assert (facts.exit_code, facts.oom_killed) == (137, True)


def test_kernel_accounting_equals_stats(run_task: RunTask) -> None:
    """The kernel's own numbers, read from the host, are those of the stats document within 1 %."""
    task = run_task(
        TaskSpec(containers=(batch_container("--cpu-seconds", "1.5", "--memory-mib", "150", "--until-term"),))
    )

    def settled() -> bool:
        """Tell whether the spinning is over and a sample of the time after it is there."""
        total = batch_stats(task).get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0)
        return bool(total / 1e9 > 1.5 and task[BATCH].kernel().cpu_seconds - total / 1e9 < 0.005)

    wait_until(settled, _END_SECONDS, "a sample of the idle batch")
    stats, kernel = batch_stats(task), task[BATCH].kernel()
    memory = stats["memory_stats"]["stats"]
    active, inactive = (memory.get(f"total_{name}", memory[name]) for name in ("active_file", "inactive_file"))
    mapped = memory.get("total_mapped_file", memory.get("file_mapped"))
    assert stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9 == pytest.approx(kernel.cpu_seconds, rel=0.01)
    assert stats["memory_stats"]["usage"] - max(0, active + inactive - mapped) == pytest.approx(
        kernel.memory_used_bytes, rel=0.01
    )
    assert kernel.memory_peak_bytes is None or kernel.memory_peak_bytes >= 150 * _MIB


def test_kernel_accounting_outlives_the_batch(run_task: RunTask) -> None:
    """The total of a finished batch can still be read, with a spike that no one-second sample need have seen."""
    task = run_task(TaskSpec(containers=(batch_container("--cpu-seconds", "0.5", "--spike-mib", "300"),)))
    task[BATCH].wait_stopped(_END_SECONDS)
    kernel = task[BATCH].kernel()
    assert 0.5 <= kernel.cpu_seconds < 1.5
    assert kernel.memory_peak_bytes is None or kernel.memory_peak_bytes > 300 * _MIB


def test_stop_of_the_projects_layout(run_task: RunTask) -> None:
    """With the monitor depending on the batch, the batch is not signalled before the monitor has stopped."""
    task = run_task(
        TaskSpec(
            containers=(
                batch_container("--until-term"),
                stand_in("--ignore-term", "--until-term", stop_timeout_seconds=1),
            )
        )
    )
    stop_when_ready(task)
    task.wait_stopped(_END_SECONDS)
    order = [(event.container, event.what) for event in task.events[2:]]
    assert order == [(MONITOR, "signalled"), (MONITOR, "stopped"), (BATCH, "signalled"), (BATCH, "stopped")]
    assert (task[MONITOR].facts.exit_code, task[BATCH].facts.exit_code) == (137, 143)


def test_stop_of_the_reverse_layout(run_task: RunTask) -> None:
    """With the batch depending on the monitor, the monitor starts first, stays to the end and is stopped last."""
    task = run_task(
        TaskSpec(containers=(batch_container("--until-term", depends_on=(MONITOR,)), stand_in(depends_on=())))
    )
    stop_when_ready(task)
    task.wait_stopped(_END_SECONDS)
    order = [(event.container, event.what) for event in task.events]
    assert order == [
        *((MONITOR, "started"), (BATCH, "started"), (BATCH, "signalled"), (BATCH, "stopped")),
        *((MONITOR, "signalled"), (MONITOR, "stopped")),
    ]


def test_batch_that_waits_for_the_monitor_has_no_docker_id(engine: Engine) -> None:
    """Before its turn a container is listed as pulled, without id and times, and has no stats entry."""
    spec = TaskSpec(containers=(batch_container(depends_on=(MONITOR,)), stand_in(depends_on=())))
    with Task(engine, spec) as task:
        task.prepare()
        waiting = batch_metadata(task)
        assert (waiting["KnownStatus"], waiting["DockerId"]) == ("PULLED", "")
        assert not {"CreatedAt", "StartedAt"} & waiting.keys()
        assert get(task, "/task/stats") == {}


def test_essential_false(run_task: RunTask) -> None:
    """The end of a batch that is not essential stops nothing else."""
    task = run_task(TaskSpec(containers=(batch_container(essential=False), stand_in())))
    task[BATCH].wait_stopped(_END_SECONDS)
    assert get(task, "/task")["DesiredStatus"] == "RUNNING"
    assert not task[MONITOR].facts.stopped


def test_shared_process_namespace(run_task: RunTask) -> None:
    """With pidMode task, containers see each other's processes, and the end of the batch leaves the others alone."""
    probe = ("python3", "-c", "import os, time; time.sleep(1); print(sum(p.isdigit() for p in os.listdir('/proc')))")
    onlooker = ContainerSpec(name="onlooker", image=BASE_IMAGE, command=probe, essential=False)
    task = run_task(TaskSpec(containers=(batch_container("--idle-seconds", "3"), onlooker), pid_mode_task=True))
    assert task["onlooker"].wait_stopped(_END_SECONDS).exit_code == 0
    assert int(task["onlooker"].logs()[0]) == 3
    assert [one["Type"] for one in get(task, "/task")["Containers"] if one["Name"] == PAUSE] == ["NAMESPACE_PAUSE"]
    task.wait_stopped(_END_SECONDS)
    assert task.events[-1].container == PAUSE


def test_nothing_is_left(engine: Engine) -> None:
    """Containers are gone when a test has failed in the middle."""

    def fails() -> None:
        with Task(engine, TaskSpec(containers=(batch_container("--ignore-term", "--until-term"), stand_in()))) as task:
            task.start()
            raise ValueError("a failing test")

    with pytest.raises(ValueError, match="a failing test"):
        fails()
    labelled = json.dumps({"label": ["com.amazonaws.ecs.task-definition-family=e2e"]})
    assert engine.api.call("GET", "/containers/json", query={"all": "true", "filters": labelled}) == []


def test_a_container_reaches_the_played_aws(aws: FakeAws, run_task: RunTask) -> None:
    """The played CloudWatch Logs is reachable from a container and gives back what was put."""
    aws.create_log_group("/harness")
    aws.create_log_stream("/harness", "ecs/batch/1")
    probe = (
        "import os, urllib.request as r, json, time; "
        "h = {'X-Amz-Target': 'Logs_20140328.PutLogEvents', 'Content-Type': 'application/x-amz-json-1.1', "
        "'Authorization': 'AWS4-HMAC-SHA256 Credential=testing/20200101/us-east-1/logs/aws4_request'}; "
        "b = {'logGroupName': '/harness', 'logStreamName': 'ecs/batch/1', "
        "'logEvents': [{'timestamp': int(time.time() * 1000), 'message': 'hello'}]}; "
        "r.urlopen(r.Request(os.environ['AWS_ENDPOINT_URL'], json.dumps(b).encode(), h))"
    )
    caller = ContainerSpec(
        name="caller", image=BASE_IMAGE, command=("python3", "-c", probe), environment=aws.environment()
    )
    task = run_task(TaskSpec(containers=(caller,)))
    assert task["caller"].wait_stopped(_END_SECONDS).exit_code == 0, task["caller"].logs()
    assert [event.message for event in aws.events("/harness", "ecs/batch/1")] == ["hello"]


def test_waiting_has_a_deadline() -> None:
    """A wait that is in vain says what it waited for."""
    with pytest.raises(WaitTimeoutError, match=r"waited 0\.05 s for nothing"):
        wait_until(lambda: None, 0.05, "nothing")


def test_unknown_endpoint_id_is_not_found(run_task: RunTask) -> None:
    """Only containers of the task are answered."""
    task = run_task(TaskSpec(containers=(batch_container("--until-term"),)))
    assert requests.get(task.endpoint.url("stranger") + "/task", timeout=5).status_code == http.HTTPStatus.NOT_FOUND


def test_accounting_of_cgroup_version_2(tmp_path: Path) -> None:
    """Version 2 has other files and units; a peak is there only on newer kernels."""
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 300\nactive_file 50\nfile_mapped 50\n")
    accounting = KernelAccounting(version=2, cpu=tmp_path, memory=tmp_path)
    assert accounting.read().cpu_seconds == pytest.approx(2.5)
    assert accounting.read().memory_used_bytes == 700
    assert accounting.read().memory_peak_bytes is None
    (tmp_path / "memory.peak").write_text("1500\n")
    assert accounting.read().memory_peak_bytes == 1500

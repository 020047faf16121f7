"""A run whose work a container engine's daemon does: its numbers are no needs."""

from msgspec.structs import replace

from profiler.cli.terminal.next_step import next_step
from profiler.record.container_engine_clients import container_client, container_client_text
from profiler.record.record_model import Process, Record, Report
from tests.cases import each_case
from tests.runs import report, reported_facts, reported_story

_REPORT: Report = report(peak_mb=5.4, p95=0.01)


def _with_processes(*names: str) -> Record:
    return replace(_REPORT.record, processes=tuple(Process(name=name) for name in names))


@each_case(
    "names, client",
    [
        (("docker",), "docker"),
        (("sh nightly.sh", "docker", "sort", "other"), "docker"),
        (("python3 docker-compose",), "docker-compose"),
        (("nerdctl",), "nerdctl"),
        # Its containers are its own descendants.
        (("podman", "python3 train.py", "conmon"), ""),
        # A daemon within the run, as in a container with Docker in it.
        (("docker", "dockerd", "containerd", "python3 train.py"), ""),
        (("python3 train.py", "dockerize", "docker-proxy"), ""),
        ((), ""),
    ],
)
def test_a_client_is_known_by_its_process(names: tuple[str, ...], client: str) -> None:
    assert container_client(_with_processes(*names)) == client


def test_its_run_has_no_needs_and_says_why() -> None:
    record = _with_processes("docker")
    facts = reported_facts(replace(_REPORT, record=record))
    assert not facts.is_measured
    assert (facts.needed_memory_mb, facts.memory_with_files_mb) == (None, None)
    assert (facts.needed_vcpu, facts.slowdown) == (None, None)
    story = reported_story(record)
    assert story.first_text_named("warning") == container_client_text(record)
    assert next_step(record, story, "") == "put task-profiler before the command in the container."


def test_another_run_has_its_needs() -> None:
    record = _with_processes("podman", "python3 train.py")
    facts = reported_facts(replace(_REPORT, record=record))
    assert (facts.needed_memory_mb, facts.needed_vcpu) == (5.4, 0.01)
    assert container_client_text(record) == ""

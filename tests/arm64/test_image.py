"""The image for arm64, built and started under qemu-user."""

import json
import struct

import pytest
from msgspec.structs import replace

import profiler
from tests.e2e.container import MONITOR, batch_container, monitor_container
from tests.e2e.engine import Engine
from tests.e2e.images import ARM64, in_container
from tests.e2e.reports import Start, finished
from tools.moto_server import FakeAws

pytestmark = pytest.mark.e2e

_ELF_MACHINE_ARM64 = 0xB7


def test_the_image_and_every_compiled_module_of_it_is_for_arm64(
    engine: Engine, monitor_image: str
) -> None:
    assert engine.api.call("GET", f"/images/{monitor_image}/json")["Architecture"] == "arm64"
    code = (
        "import json, pathlib, platform; files = "
        "pathlib.Path('/opt/task-profiler').rglob('*.so'); print(json.dumps([platform.machine(), "
        "{f.name: f.read_bytes()[:20].hex() for f in files}]))"
    )
    machine, modules = json.loads(in_container(engine, monitor_image, "-c", code, platform=ARM64))
    assert machine == "aarch64"
    assert any(name.startswith("_core") for name in modules), modules
    machines = {
        name: struct.unpack("<H", bytes.fromhex(head)[18:20])[0] for name, head in modules.items()
    }
    assert set(machines.values()) == {_ELF_MACHINE_ARM64}, machines


def test_the_command_starts_without_rights(engine: Engine, monitor_image: str) -> None:
    assert (
        in_container(
            engine, monitor_image, "--version", entrypoint="task-profiler", platform=ARM64
        ).strip()
        == f"task-profiler {profiler.__version__}"
    )


def test_the_monitor_reports(start: Start, monitor_image: str, aws: FakeAws) -> None:
    # The emulator's own memory counts, too.
    monitor = replace(monitor_container(aws.environment(), memory_mib=512), image=monitor_image)
    task = start(
        batch_container(
            "--cpu-seconds", "3", "--memory-mib", "100", "--idle-seconds", "20", cpus=1
        ),
        monitor,
    )
    record = finished(aws, task)
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    assert record["metrics"]["maxMemoryUsedMB"] > 100
    assert task[MONITOR].facts.exit_code == 0

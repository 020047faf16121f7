"""The image that taskdef/Dockerfile makes: what is in it, what it may do, and that it works with
nothing more.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import profiler
from tests.e2e.container import MONITOR, batch_container, monitor_container
from tests.e2e.engine import CommandFailedError, Engine
from tests.e2e.images import (
    BASE_IMAGE,
    PYTHON,
    build_image,
    in_container,
    make_monitor_image,
    remove_image,
)
from tests.e2e.neuron_repository import SUITE, NeuronRepository, neuron_repository
from tests.e2e.reports import Start, finished
from tests.fake_nvml import compile_driver
from tools.moto_server import FakeAws

pytestmark = pytest.mark.e2e

ROOT = Path(profiler.__file__).parent.parent
_MB = 1_000_000
_PLAIN_IMAGE = "task-profiler-e2e-plain:latest"
_NEURON_IMAGE = "task-profiler-e2e-neuron:latest"
_BUILD_TOOLS = ("cc", "gcc", "g++", "clang", "ld", "as", "make", "pip", "pip3")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NeuronRepository]:
    with neuron_repository(tmp_path_factory.mktemp("neuron")) as served:
        yield served


@pytest.fixture(scope="module")
def neuron_image(
    engine: Engine, monitor_image: str, repository: NeuronRepository, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Give the name of the Neuron variant, made from the monitor's image."""
    build_neuron_image(engine, monitor_image, repository, request)
    yield _NEURON_IMAGE
    remove_image(engine, _NEURON_IMAGE)


def build_neuron_image(
    engine: Engine,
    monitor_image: str,
    repository: NeuronRepository,
    request: pytest.FixtureRequest,
    **arguments: str,
) -> None:
    images = {"MONITOR_IMAGE": monitor_image, "TOOLS_IMAGE": BASE_IMAGE}
    source = {"NEURON_REPOSITORY": repository.url, "NEURON_SUITE": SUITE}
    root = Path(request.config.rootpath)
    build_image(
        engine,
        _NEURON_IMAGE,
        root / "taskdef" / "Dockerfile.neuron",
        root,
        images | source | arguments,
    )


def inspected(engine: Engine, image: str) -> dict[str, Any]:
    document: dict[str, Any] = engine.api.call("GET", f"/images/{image}/json")
    return document


def test_the_image_adds_less_than_80_mb_to_its_base(engine: Engine, monitor_image: str) -> None:
    added = inspected(engine, monitor_image)["Size"] - inspected(engine, BASE_IMAGE)["Size"]
    assert 0 < added < 80 * _MB


def test_the_image_says_what_it_is_and_how_it_is_run(engine: Engine, monitor_image: str) -> None:
    config = inspected(engine, monitor_image)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == [PYTHON, "-I", "-m", "profiler"]
    assert config["Cmd"] == ["monitor"]
    assert "Healthcheck" not in config
    assert config["Labels"]["org.opencontainers.image.version"] == profiler.__version__
    assert config["Labels"]["org.opencontainers.image.base.name"] == BASE_IMAGE


def test_nothing_that_builds_is_left_in_the_image(engine: Engine, monitor_image: str) -> None:
    folders = ["/src", "/opt/pip", "/root/.cache"]
    code = (
        "import json, os, shutil, importlib.util as u; "
        f"print(json.dumps([[t for t in {_BUILD_TOOLS!r} if shutil.which(t)], "
        f"[f for f in {folders!r} if os.path.exists(f)], u.find_spec('pip') is not None]))"
    )
    assert json.loads(in_container(engine, monitor_image, "-c", code, user="0")) == [[], [], False]


def test_all_modules_are_compiled_and_none_can_be_changed(
    engine: Engine, monitor_image: str
) -> None:
    code = (
        "import os, pathlib, importlib.util as u; files = [f for f in "
        "pathlib.Path('/opt/task-profiler').rglob('*') if not f.is_symlink()]; modules = [f for "
        "f in files if f.suffix == '.py' and 'site-packages' in f.parts]; bare = [f for f in "
        "modules if not pathlib.Path(u.cache_from_source(str(f))).exists()]; print(len(modules) "
        "> 100, len(bare), sum(f.stat().st_uid != 0 or f.stat().st_mode & 0o022 for f in files))"
    )
    assert in_container(engine, monitor_image, "-c", code).split() == ["True", "0", "0"]


def test_botocore_still_knows_the_services_that_are_called(
    engine: Engine, monitor_image: str
) -> None:
    services = ["logs", "ecs", "lambda", "sts", "sso", "sso-oidc"]
    code = (
        "import boto3; "
        f"clients = [boto3.client(one, region_name='us-east-1') for one in {services!r}]; "
        "print(*(client.meta.service_model.service_name for client in clients))"
    )
    assert in_container(engine, monitor_image, "-c", code).split() == services


def test_the_image_reports_with_no_more_rights_and_64_mb(
    start: Start, monitor_image: str, aws: FakeAws
) -> None:
    monitor = monitor_container(aws.environment(), memory_mib=64)
    task = start(
        batch_container("--cpu-seconds", "3", "--memory-mib", "100", "--idle-seconds", "4", cpus=1),
        replace(monitor, image=monitor_image, user=""),  # the image's own user
    )
    code = "import os; print(open('/proc/1/cmdline').read().split(chr(0))[1:-1], os.getuid())"
    assert (
        task[MONITOR].execute("python3", "-c", code).strip()
        == "['-I', '-m', 'profiler', 'monitor'] 65532"
    )
    record = finished(aws, task)
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    assert record["metrics"]["maxMemoryUsedMB"] > 100
    assert task[MONITOR].facts.exit_code == 0
    assert task[MONITOR].facts.oom_killed is False
    assert task[MONITOR].logs()[1] == ""


def test_the_image_finds_gpus(
    start: Start, monitor_image: str, aws: FakeAws, tmp_path: Path
) -> None:
    driver = compile_driver(tmp_path) / "libnvidia-ml.so.1"
    monitor = replace(
        monitor_container(aws.environment() | {"LD_LIBRARY_PATH": "/driver"}, memory_mib=192),
        read_only_mounts=((driver, f"/driver/{driver.name}"),),
    )
    task = start(batch_container("--idle-seconds", "3"), monitor)
    assert [gpu["utilizationPercent"]["max"] for gpu in finished(aws, task)["gpus"]] == [75, 0]


def test_the_image_has_py_spy_beside_python(engine: Engine, monitor_image: str) -> None:
    version = in_container(
        engine, monitor_image, "--version", entrypoint="/opt/task-profiler/bin/py-spy"
    )
    assert version.strip() in (
        ROOT / "taskdef" / "requirements" / "stacks.txt"
    ).read_text().replace("==", " ")


def test_extras_are_chosen_when_the_image_is_built(
    engine: Engine, request: pytest.FixtureRequest
) -> None:
    try:
        make_monitor_image(engine, Path(request.config.rootpath), _PLAIN_IMAGE, {"EXTRAS": ""})
        code = (
            "import importlib.util as u, os.path as p; "
            "print([*(u.find_spec(m) is not None for m in ('profiler', 'pynvml'))], "
            "p.exists('/opt/task-profiler/bin/py-spy'))"
        )
        assert in_container(engine, _PLAIN_IMAGE, "-c", code).strip() == "[True, False] False"
    finally:
        remove_image(engine, _PLAIN_IMAGE)


def test_the_neuron_variant_has_neuron_monitor_and_reports(
    engine: Engine, neuron_image: str, repository: NeuronRepository, start: Start, aws: FakeAws
) -> None:
    assert inspected(engine, neuron_image)["Config"]["User"] == "0:0"
    program = "/opt/aws/neuron/bin/neuron-monitor"
    assert in_container(engine, neuron_image, entrypoint=program).strip() == repository.output
    monitor = replace(monitor_container(aws.environment()), image=neuron_image, user="root")
    task = start(batch_container("--idle-seconds", "2"), monitor)
    assert finished(aws, task)["status"] == "success"


def test_a_neuron_package_that_was_changed_is_refused(
    engine: Engine,
    monitor_image: str,
    neuron_image: str,
    repository: NeuronRepository,
    request: pytest.FixtureRequest,
) -> None:
    assert neuron_image
    repository.change_package()
    with pytest.raises(CommandFailedError, match="Hash Sum mismatch"):
        build_neuron_image(
            engine, monitor_image, repository, request, NEURON_TOOLS="aws-neuronx-tools=0.0.1"
        )

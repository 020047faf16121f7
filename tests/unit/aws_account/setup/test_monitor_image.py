"""The commands that build the image, and what is checked before."""

import json
import signal
from pathlib import Path

import pytest

from profiler.aws_account.setup.monitor_image import DockerProgram
from profiler.cli.interruption import StoppedBySignal, signals_end_command
from profiler.core.errors import TaskProfilerError
from tests.fake_docker import FakeDocker

BOTH = "linux/amd64*, linux/arm64, linux/386"
REGISTRY = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
LOGIN = (REGISTRY, "AWS", "hunter2", lambda: None)
IMAGE = f"{REGISTRY}/task-profiler:1"


def docker(fake: FakeDocker) -> DockerProgram:
    return DockerProgram(fake.environment())


@pytest.mark.parametrize(
    ("driver", "store", "platforms", "needs_builder"),
    [
        ("docker", "null", (), True),
        ("docker", "null", ("linux/arm64",), False),
        ("docker", '[["driver-type","io.containerd.snapshotter.v1"]]', (), False),
        ("docker-container", "null", (), False),
    ],
)
def test_buildx_builds_for_both_platforms_with_a_builder_that_can(
    tmp_path: Path, driver: str, store: str, platforms: tuple[str, ...], *, needs_builder: bool
) -> None:
    fake = FakeDocker(tmp_path, platforms=BOTH, driver=driver, store=store)
    build = docker(fake).plan_build(platforms, ())
    assert build.platforms == (platforms or ("linux/amd64", "linux/arm64"))
    *created, built = build.docker_commands(IMAGE, "/context")
    assert bool(created) is needs_builder is ("--builder" in built)
    assert "--push" in built


def test_a_builder_of_our_own_is_removed_even_if_the_build_fails(tmp_path: Path) -> None:
    fake = FakeDocker(tmp_path, platforms=BOTH, build=3)
    with pytest.raises(
        TaskProfilerError, match=r"^docker buildx build failed with exit code 3: its output above"
    ):
        docker(fake).build_and_push(
            docker(fake).plan_build((), ()), IMAGE, str(tmp_path / "bin"), int
        )
    assert fake.commands()[-1] == "buildx rm task-profiler"


def test_a_platform_without_an_emulator_is_refused(tmp_path: Path) -> None:
    fake = FakeDocker(tmp_path, platforms="linux/amd64, linux/386")
    with pytest.raises(
        TaskProfilerError,
        match=r"cannot build for linux/arm64: .*, or use --platform linux/amd64\.$",
    ):
        docker(fake).plan_build((), ())
    assert docker(fake).plan_build(("linux/amd64",), ()).platforms == ("linux/amd64",)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("echo Cannot connect to it. >&2; exit 1", "Cannot connect to it"),
        ("exit 1", "exit code 1, without a reason"),
    ],
)
def test_a_daemon_that_does_not_answer_is_said(tmp_path: Path, version: str, said: str) -> None:
    whole = rf"^The Docker daemon does not answer \({said}\): start it, or let this user use it"
    with pytest.raises(TaskProfilerError, match=whole):
        docker(FakeDocker(tmp_path, version=version)).check_docker()


def test_the_password_is_in_neither_a_command_line_nor_the_users_configuration(
    tmp_path: Path,
) -> None:
    fake = FakeDocker(tmp_path)
    own = tmp_path / ".docker"
    (own / "cli-plugins").mkdir(parents=True)
    others = {
        "credsStore": "desktop",
        "auths": {"ghcr.io": {}, REGISTRY: {}},
        "credHelpers": {"gcr.io": "gcloud"},
    }
    (own / "config.json").write_text(json.dumps(others))
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    with docker(fake).signed_in(*LOGIN):
        pass
    assert fake.commands() == [f"login --username AWS --password-stdin {REGISTRY}"]
    assert fake.password() == "hunter2"
    # Only this registry's password goes into the file; base images still come from the others.
    assert fake.configuration() == {
        "credsStore": "desktop",
        "auths": {"ghcr.io": {}},
        "credHelpers": {"gcr.io": "gcloud", REGISTRY: ""},
    }
    assert (tmp_path / "config" / "cli-plugins").exists()
    assert {path: path.read_bytes() for path in own.rglob("*") if path.is_file()} == before
    refusing = docker(FakeDocker(tmp_path / "refusing", login=1))
    with (
        pytest.raises(TaskProfilerError, match=f"^Docker cannot sign in to {REGISTRY}: "),
        refusing.signed_in(*LOGIN),
    ):
        pass


def test_the_end_by_sigterm_leaves_no_password(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    folders = []

    def end() -> None:
        with docker(FakeDocker(tmp_path)).signed_in(*LOGIN) as signed_in:
            folders.append(Path(signed_in._environment["DOCKER_CONFIG"]))
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(StoppedBySignal), signals_end_command():
        end()
    assert not folders[0].exists()
    assert signal.getsignal(signal.SIGTERM) == before

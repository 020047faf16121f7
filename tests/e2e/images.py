"""Makes the container images of the end-to-end tests without an image registry.

The base is a minimal Debian with Python from `debootstrap`, kept as an archive in the user's cache folder because it
takes half a minute. The monitor image is the base with the product's wheel and its dependencies, installed as a user
would: from the built wheel, never from the source tree.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.docker_api import DockerError
from tests.e2e.engine import Engine, EngineMissingError, run_command

BASE_IMAGE = "task-profiler-e2e-base:1"
MONITOR_IMAGE = "task-profiler-e2e-monitor:latest"

_RELEASE = "bookworm"
_RELEASE_PYTHON = "3.11"
_INSTALLED_AT = "/opt/task-profiler"
_NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
_DOCKERFILE = f"""\
FROM {BASE_IMAGE}
COPY site {_INSTALLED_AT}
RUN ["python3", "-m", "compileall", "-q", "{_INSTALLED_AT}"]
ENV PYTHONPATH={_INSTALLED_AT} PYTHONUNBUFFERED=1
USER 65532
ENTRYPOINT ["python3", "-m", "profiler"]
"""


def default_cache() -> Path:
    """Return the folder where the base image's archive is kept between runs."""
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent) / "task-profiler" / "e2e"


def image_exists(engine: Engine, image: str) -> bool:
    """Tell whether the daemon has an image of this name."""
    try:
        engine.api.call("GET", f"/images/{image}/json")
    except DockerError as error:
        if error.status == 404:
            return False
        raise
    return True


def remove_image(engine: Engine, image: str) -> None:
    """Delete an image that a test made; the base's archive stays in the cache."""
    engine.command("image", "rm", "--force", image)


def make_base_image(engine: Engine, cache: Path) -> str:
    """Import the base image into the daemon if it is not there, and return its name."""
    if not image_exists(engine, BASE_IMAGE):
        archive = _root_file_system(cache)
        engine.command("import", "--change", 'CMD ["python3"]', str(archive), BASE_IMAGE)
    return BASE_IMAGE


def make_monitor_image(engine: Engine, repository: Path, extras: Sequence[str] = ()) -> str:
    """Build the product's wheel and an image that runs it; the base image must be there. Return its name."""
    with tempfile.TemporaryDirectory(prefix="task-profiler-e2e-") as name:
        folder = Path(name)
        wheel = _build_wheel(repository, folder / "wheel")
        _install_wheel(wheel, folder / "context" / "site", extras)
        (folder / "context" / "Dockerfile").write_text(_DOCKERFILE)
        _build_image(engine, folder / "context")
    return MONITOR_IMAGE


def _root_file_system(cache: Path) -> Path:
    """Return the archive of the base's files, made at the first call on this machine."""
    archive = cache / f"base-1-{platform.machine()}.tar"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # two test processes must not build it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _debootstrap(archive)
    return archive


def _debootstrap(archive: Path) -> None:
    if shutil.which("debootstrap") is None:
        raise EngineMissingError("the base image needs the debootstrap program")
    root = _as_root()
    folder = archive.parent / "root-file-system"
    partial = archive.with_suffix(".partial")
    packages = "python3,ca-certificates"
    try:
        run_command(*root, "debootstrap", "--variant=minbase", f"--include={packages}", _RELEASE, str(folder))
        run_command(*root, "rm", "-rf", *(str(folder / path) for path in _NOT_NEEDED))
        run_command(*root, "tar", "--numeric-owner", "-C", str(folder), "-cf", str(partial), ".")
    finally:
        run_command(*root, "rm", "-rf", str(folder))
    partial.rename(archive)


def _as_root() -> tuple[str, ...]:
    """Return what to put before a command that needs root: nothing for root itself, else sudo without a question."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") is None:
        raise EngineMissingError("debootstrap needs root")
    return ("sudo", "--non-interactive")


def _build_wheel(repository: Path, folder: Path) -> Path:
    run_command(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(repository))
    return next(folder.glob("*.whl"))


def _install_wheel(wheel: Path, folder: Path, extras: Sequence[str]) -> None:
    """Install for the Python of the base image, whichever one runs the tests."""
    machine = platform.machine()
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
    requirement = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    run_command(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"),
        *(f"--python-version={_RELEASE_PYTHON}", "--implementation=cp", *platforms),
        *(f"--target={folder}", requirement),
    )


def _build_image(engine: Engine, context: Path) -> None:
    """Build without network: bridge-less daemons have none to give, and nothing is fetched here."""
    buildx = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0
    environment = {"BUILDX_BUILDER": "default"} if buildx else {"DOCKER_BUILDKIT": "0"}
    arguments = ("build", "--quiet", "--network=none", f"--tag={MONITOR_IMAGE}", str(context))
    engine.command(*arguments, environment=environment)

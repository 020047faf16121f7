"""Makes the container images of the end-to-end tests without an image registry.

The base is a minimal Debian with Python from `debootstrap`, kept as an archive in the user's cache
folder because it takes half a minute. The monitor's image is the one that users build, from the
same Dockerfile.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import platform as machine
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from tests.e2e.engine import DockerError, Engine, EngineMissingError, run_command


class Platform(Struct, frozen=True, kw_only=True):
    """The processor of an image: names of its base image, and what the kernel, Docker and Debian
    call it.
    """

    base_image: str
    machine: str
    docker: str = ""
    debian: str = ""


BASE_IMAGE = "task-profiler-e2e-base:2"
NATIVE = Platform(base_image=BASE_IMAGE, machine=machine.machine())
ARM64 = Platform(
    base_image="task-profiler-e2e-base-arm64:2",
    machine="aarch64",
    docker="linux/arm64",
    debian="arm64",
)
PYTHON = "/opt/task-profiler/bin/python3"  # in the product's image
MONITOR_IMAGE = "task-profiler-e2e-monitor:latest"

# Docker's names of the kernel's.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_BUILD_IMAGE = f"task-profiler-e2e-build:{os.getpid()}"  # two test processes may build at once
_RELEASE = "bookworm"
_NOT_NEEDED = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "cert")
# Unpacks the packages of another processor without running their scripts, which is slow in an
# emulator. Python, pip and a shell need only the files, and a user database for `USER root`.
_UNPACK = """
for package in "$1"/var/cache/apt/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$1"
done
test -e "$1/bin/sh" || ln -s dash "$1/bin/sh"
echo root:x:0:0:root:/root:/bin/sh >"$1/etc/passwd"
echo root:x:0: >"$1/etc/group"
rm -r "$1/debootstrap"
"""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CERTIFICATES = "/etc/pip-certificates.crt"
_BUILD_DOCKERFILE = f"""\
COPY certificates.crt {_CERTIFICATES}
COPY pip.conf /etc/pip.conf
"""


def in_container(
    engine: Engine,
    image: str,
    *command: str,
    entrypoint: str = PYTHON,
    user: str = "",
    platform: Platform = NATIVE,
) -> str:
    """Run a program in the image with no more rights than the monitor has, and return its
    output.
    """
    rights = ("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    given = (*rights, *_platform_option(platform), f"--user={user}", f"--entrypoint={entrypoint}")
    return engine.command("run", "--rm", *given, image, *command)


def _platform_option(platform: Platform) -> tuple[str, ...]:
    return (f"--platform={platform.docker}",) if platform.docker else ()


def default_cache() -> Path:
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent) / "task-profiler" / "e2e"


def image_exists(engine: Engine, image: str) -> bool:
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


def make_base_image(engine: Engine, cache: Path, platform: Platform = NATIVE) -> str:
    """Load the base image into the daemon if it is not there, and return its name.

    ``docker import`` before version 23 ignores the processor in ``--platform``.
    """
    image = platform.base_image
    if not image_exists(engine, image):
        archive = root_file_system(cache, platform)
        with tempfile.TemporaryDirectory(prefix="task-profiler-e2e-", dir=cache) as name:
            loaded = Path(name) / "image.tar"
            _write_image_archive(loaded, archive, image, platform)
            engine.command("load", "--quiet", "--input", str(loaded))
    return image


def _write_image_archive(path: Path, layer: Path, image: str, platform: Platform) -> None:
    """Write an image of one layer in the format of ``docker save``."""
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    configuration = {
        "architecture": ARCHITECTURES[platform.machine],
        "os": "linux",
        "config": {"Cmd": ["python3"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "configuration.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        archive.add(layer, "layer.tar")
        for name, document in (("configuration.json", configuration), ("manifest.json", manifest)):
            data = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def make_monitor_image(
    engine: Engine,
    repository: Path,
    image: str = MONITOR_IMAGE,
    arguments: Mapping[str, str] | None = None,
    platform: Platform = NATIVE,
) -> str:
    """Build the product's image from the working tree; the base image must be there.

    Return its name.
    """
    base = platform.base_image
    with build_image_of_this_machine(engine, base, platform) as pip_image:
        images = {"BASE_IMAGE": base, "BUILD_IMAGE": pip_image}
        dockerfile = repository / "taskdef" / "Dockerfile"
        build_image(engine, image, dockerfile, repository, images | dict(arguments or {}), platform)
    return image


@contextlib.contextmanager
def build_image_of_this_machine(
    engine: Engine, base: str, platform: Platform = NATIVE
) -> Iterator[str]:
    """Yield the name of a base image whose pip has this machine's settings."""
    with tempfile.TemporaryDirectory(prefix="task-profiler-e2e-") as name:
        folder = Path(name)
        _write_pip_settings(folder)
        (folder / "Dockerfile").write_text(f"FROM {base}\n{_BUILD_DOCKERFILE}")
        build_image(engine, _BUILD_IMAGE, folder / "Dockerfile", folder, {}, platform)
    try:
        yield _BUILD_IMAGE
    finally:
        remove_image(engine, _BUILD_IMAGE)


def has_buildx() -> bool:
    return (
        subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode
        == 0
    )


def build_image(
    engine: Engine,
    image: str,
    dockerfile: Path,
    context: Path,
    arguments: Mapping[str, str],
    platform: Platform = NATIVE,
) -> None:
    """Build on the network of this machine: bridge-less daemons have no other."""
    environment = {"BUILDX_BUILDER": "default"} if has_buildx() else {"DOCKER_BUILDKIT": "0"}
    given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    given += [f"--build-arg={name}" for name in PROXIES if name in os.environ]
    given += _platform_option(platform)
    engine.command(
        *("build", "--quiet", "--network=host", "--force-rm", f"--tag={image}"),
        *(f"--file={dockerfile}", *given, str(context)),
        environment=environment,
    )


def root_file_system(cache: Path, platform: Platform) -> Path:
    """Return the archive of the base's files, made at the first call on this machine."""
    archive = cache / f"base-2-{platform.machine}.tar"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # two test processes must not build it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _debootstrap(archive, platform)
    return archive


def _debootstrap(archive: Path, platform: Platform) -> None:
    if shutil.which("debootstrap") is None:
        raise EngineMissingError("the base image needs the debootstrap program")
    root = _as_root()
    folder = archive.parent / "root-file-system"
    partial = archive.with_suffix(".partial")
    options = ["--variant=minbase", "--include=python3,python3-venv,ca-certificates"]
    if platform.debian:
        options += [f"--arch={platform.debian}", "--foreign"]
    try:
        run_command(*root, "debootstrap", *options, _RELEASE, str(folder))
        if platform.debian:
            run_command(*root, "sh", "-ec", _UNPACK, "unpack", str(folder))
        run_command(*root, "rm", "-rf", *(str(folder / path) for path in _NOT_NEEDED))
        run_command(*root, "tar", "--numeric-owner", "-C", str(folder), "-cf", str(partial), ".")
    finally:
        run_command(
            *root, "rm", "-rf", "--one-file-system", str(folder)
        )  # never into something mounted below
    partial.rename(archive)


def _as_root() -> tuple[str, ...]:
    """Return what to put before a command that needs root: nothing for root itself, else sudo
    without a question.
    """
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") is None:
        raise EngineMissingError("debootstrap needs root")
    return ("sudo", "--non-interactive")


def _write_pip_settings(folder: Path) -> None:
    """Let pip in a build find packages as pip on this machine does: its index, its certificates."""
    listed = run_command(sys.executable, "-m", "pip", "config", "list").splitlines()
    settings = {}
    # The environment's settings come first and win.
    for name, _, value in reversed([line.partition("=") for line in sorted(listed)]):
        key = name.rpartition(".")[2]
        if key in _PIP_SETTINGS:
            settings[key] = value.strip("'\"")
    certificates = settings.get("cert")
    (folder / "certificates.crt").write_bytes(
        Path(certificates).read_bytes() if certificates else b""
    )
    if certificates:
        settings["cert"] = _CERTIFICATES
    lines = [f"{key} = {value}" for key, value in settings.items()]
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))

"""An apt repository like AWS's for Neuron, with a stand-in for its package: real archives, a
real signature.

Repository format: https://wiki.debian.org/DebianRepository/Format .
"""

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from msgspec import Struct

from tests.e2e.engine import run_command
from tests.http_server import FakeHttpServer
from tests.prerequisites import skip_or_fail

SUITE = "jammy"
KEY_NAME = "GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"

_PACKAGE = "aws-neuronx-tools"
_VERSION = "0.0.1"
_SAYS = '{"neuron_runtime_data":[]}'
_PROGRAM = f"#!/bin/sh\necho '{_SAYS}'\n"


class NeuronRepository(Struct, frozen=True):
    """Where it is served, and what its neuron-monitor prints."""

    url: str
    folder: Path
    output: str = _SAYS

    def change_package(self) -> None:
        """Change one byte of the package under its signature, as an attacker would."""
        (package,) = self.folder.glob("pool/*.deb")
        content = package.read_bytes()
        package.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@contextlib.contextmanager
def neuron_repository(folder: Path) -> Iterator[NeuronRepository]:
    """Make the repository in an empty folder and serve it on a free port for the length of the
    block.
    """
    for program in ("gpg", "dpkg-deb"):
        if shutil.which(program) is None:
            skip_or_fail(f"there is no {program}: on Debian, apt-get install gnupg dpkg")
    root = folder / "repository"
    control = _make_package(folder / "package", root / "pool")
    _write_indexes(root, control)
    _sign(folder / "gpg", root)
    with _Files(root) as server:
        yield NeuronRepository(url=server.url, folder=root)


class _Files(FakeHttpServer):
    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        file = self._root / request.path.lstrip("/")
        return (200, {}, file.read_bytes()) if file.is_file() else (404, {}, b"")


def _make_package(source: Path, pool: Path) -> str:
    """Build the package and return its control fields."""
    program = source / "opt" / "aws" / "neuron" / "bin" / "neuron-monitor"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    architecture = run_command("dpkg", "--print-architecture").strip()
    control = (
        f"Package: {_PACKAGE}\nVersion: {_VERSION}\nArchitecture: {architecture}\n"
        "Maintainer: Nobody <nobody@example.com>\nDescription: stand-in\n"
    )
    (source / "DEBIAN").mkdir()
    (source / "DEBIAN" / "control").write_text(control)
    pool.mkdir(parents=True)
    run_command(
        "dpkg-deb", "--root-owner-group", "--build", str(source), str(pool / f"{_PACKAGE}.deb")
    )
    return control


def _write_indexes(root: Path, control: str) -> None:
    package = (root / "pool" / f"{_PACKAGE}.deb").read_bytes()
    entry = (
        f"Filename: pool/{_PACKAGE}.deb\nSize: {len(package)}\nSHA256: "
        f"{hashlib.sha256(package).hexdigest()}\n"
    )
    packages = f"{control}{entry}".encode()
    architecture = run_command("dpkg", "--print-architecture").strip()
    place = f"main/binary-{architecture}/Packages"
    suite = root / "dists" / SUITE
    (suite / place).parent.mkdir(parents=True)
    (suite / place).write_bytes(packages)
    (suite / "Release").write_text(
        f"Suite: {SUITE}\nCodename: {SUITE}\nComponents: main\nArchitectures: {architecture}\n"
        "Date: Thu, 01 Jan 2026 00:00:00 UTC\n"
        f"SHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} {place}\n"
    )


def _sign(home: Path, root: Path) -> None:
    """Sign the Release file with a key made for this, and lay the public key where AWS has its
    own.
    """
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "")
    release = root / "dists" / SUITE / "Release"
    try:
        run_command(*gpg, "--quick-gen-key", "nobody@example.com", "ed25519", "sign", "never")
        run_command(
            *gpg, "--armor", "--output", str(root / KEY_NAME), "--export", "nobody@example.com"
        )
        run_command(
            *gpg, "--clearsign", "--output", str(release.with_name("InRelease")), str(release)
        )
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)

"""``task-profiler setup image`` from an installed wheel: a real build, a real push, the image
started.

The registry is in memory, with basic authentication: as much of one as ``docker push`` needs.
"""

import hashlib
import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from moto.ecr.models import Repository
from moto.ecr.responses import ECRResponse

import profiler
from tests.e2e.engine import Engine
from tests.e2e.images import (
    ARCHITECTURES,
    BASE_IMAGE,
    NATIVE,
    PROXIES,
    build_image_of_this_machine,
    has_buildx,
    remove_image,
)
from tests.http_server import FakeHttpServer
from tests.tutorial import build_wheel
from tools.moto_server import FakeAws

pytestmark = pytest.mark.e2e

USER, PASSWORD = "AWS", "hunter2"
_AUTHORIZATION = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


class Registry(FakeHttpServer):
    """Serves a free port of 127.0.0.1, where Docker asks for no TLS."""

    def __init__(self) -> None:
        super().__init__()
        self.address = self.url.removeprefix("http://")
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}

    def manifest(self, name: str, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifests[f"{name}/manifests/{tag}"])
        return found

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if request.headers.get("Authorization") != _AUTHORIZATION:
            return 401, {"WWW-Authenticate": 'Basic realm="registry"'}, b""
        url = urlsplit(request.path)
        path, name = url.path.removeprefix("/v2/"), url.path.rpartition("/")[2]
        match request.command:
            case "POST":
                made = str(len(self.uploads))
                self.uploads[made] = b""
                return 202, {"Location": f"{url.path}{made}"}, b""
            case "PATCH":
                self.uploads[name] += body
                return (
                    202,
                    {"Location": request.path, "Range": f"0-{len(self.uploads[name]) - 1}"},
                    b"",
                )
            case "PUT" if "/blobs/uploads/" in url.path:
                (digest,) = parse_qs(url.query)["digest"]
                self.blobs[digest] = self.uploads[name] + body
                return 201, {"Docker-Content-Digest": digest}, b""
            case "PUT":
                self.manifests[path] = body
                return (
                    201,
                    {"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"},
                    b"",
                )
        found = self.manifests.get(path, self.blobs.get(name))
        return (404, {}, b"") if path and found is None else (200, {}, found or b"{}")

    def read(self, request: BaseHTTPRequestHandler) -> bytes:
        if request.headers.get("Transfer-Encoding") != "chunked":
            return super().read(request)
        parts = []
        while size := int(request.rfile.readline(), 16):
            parts.append(request.rfile.read(size))
            request.rfile.readline()
        request.rfile.readline()
        return b"".join(parts)


@pytest.fixture
def ecr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The registry as the account's ECR."""
    with Registry() as registry:
        made = Repository.__init__

        def init(self: Any, *arguments: Any, **named: Any) -> None:
            made(self, *arguments, **named)
            self.repository_uri = self.read_uri = f"{registry.address}/{self.name}"

        token = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        data = {
            "authorizationToken": token,
            "proxyEndpoint": f"https://{registry.address}",
            "expiresAt": 1,
        }
        answer = json.dumps({"authorizationData": [data]})
        monkeypatch.setattr(Repository, "__init__", init)
        monkeypatch.setattr(ECRResponse, "get_authorization_token", lambda _: answer)
        yield registry


def test_an_installed_wheel_builds_and_pushes_its_image(
    engine: Engine, ecr: Registry, aws: FakeAws, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        str(installed),
    )
    subprocess.run((*pip, str(build_wheel(tmp_path / "wheel"))), check=True)
    own = tmp_path / ".docker" / "config.json"
    own.parent.mkdir()
    own.write_text('{"credsStore": "missing"}')
    image = f"{ecr.address}/task-profiler:{profiler.__version__}"
    proxies = [f"--build-arg={name}" for name in PROXIES if name in os.environ]
    platform = ("--platform", f"linux/{ARCHITECTURES[NATIVE.machine]}") if has_buildx() else ()
    with build_image_of_this_machine(engine, BASE_IMAGE) as build_image:
        arguments = (
            f"--build-arg=BASE_IMAGE={BASE_IMAGE}",
            f"--build-arg=BUILD_IMAGE={build_image}",
            *proxies,
        )
        program = str(installed / "bin" / "task-profiler")
        done = subprocess.run(
            [program, "setup", "image", "--yes", *platform, "--", "--network=host", *arguments],
            cwd=installed,
            env=engine.environment()
            | aws.environment()
            | {"PYTHONPATH": str(installed), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{image}\n", done.stderr
    try:
        assert len(ecr.manifest("task-profiler", profiler.__version__)["layers"]) >= 3
        assert (
            engine.command("run", "--rm", "--network=none", image, "--version").split()[-1]
            == profiler.__version__
        )
    finally:
        remove_image(engine, image)
    assert own.read_text() == '{"credsStore": "missing"}'
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]

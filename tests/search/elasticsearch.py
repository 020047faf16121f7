"""Runs Elasticsearch from the distribution that Elastic publishes for integration tests.

It is the real server with few of its modules: there are no scripts, no ingest pipelines, no index lifecycle, no
reindex and no delete by query. A template that names a lifecycle policy is therefore refused.
"""

import contextlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.search.maven import Artifact, ServerMissingError, fetch_zip, require_program
from tests.search.security import ADMIN, SETTINGS, secure
from tests.search.server import HEAP_OPTIONS, Credentials, Launch, SearchServer, free_ports, running

VERSION_7: Final = "7.17.29"
VERSION_8: Final = "8.7.1"  # later ones do not answer `GET /` in this distribution, which the clients ask for

_GROUP: Final = "org.elasticsearch.distribution.integ-test-zip"
_UNPRIVILEGED: Final = "nobody"  # Elasticsearch refuses to run as root


def fetch_elasticsearch(version: str) -> Path:
    """Return the distribution's zip, fetched at the first call on this machine."""
    return fetch_zip(Artifact(group=_GROUP, name="elasticsearch", version=version))


@contextlib.contextmanager
def running_elasticsearch(version: str, java_options: Sequence[str] = HEAP_OPTIONS) -> Iterator[SearchServer]:
    """Give an Elasticsearch without security for the length of the block."""
    settings = {"xpack.security.enabled": "false"}
    with _server(version, settings=settings, admin=None, java_options=java_options) as server:
        yield server


@contextlib.contextmanager
def running_secured_elasticsearch(version: str) -> Iterator[SearchServer]:
    """Give an Elasticsearch that asks who is calling, with one user who may do everything.

    More users, roles and API keys are made through its `_security` API.
    """
    with _server(version, settings=SETTINGS, admin=ADMIN) as server:
        yield server


@contextlib.contextmanager
def _server(
    version: str,
    *,
    settings: Mapping[str, str],
    admin: Credentials | None,
    java_options: Sequence[str] = HEAP_OPTIONS,
) -> Iterator[SearchServer]:
    java = require_program("java")
    archive = fetch_elasticsearch(version)
    with tempfile.TemporaryDirectory(prefix="task-profiler-search-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        home = _unpack(archive, folder)
        http_port, transport_port = free_ports(2)
        ports = {"http.port": str(http_port), "transport.port": str(transport_port)}
        _configure(home / "config", {**_common_settings(folder), **ports, **settings})
        if admin is not None:
            secure(home, version)
        launch = Launch(
            command=(str(home / "bin" / "elasticsearch"),),
            environment=_environment(folder, java, java_options),
            folder=folder,
            user=_give_away(folder),
        )
        server = SearchServer(engine="elasticsearch", version=version, port=http_port, launch=launch, admin=admin)
        with running(server):
            yield server


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack the distribution and return its home."""
    with zipfile.ZipFile(archive) as content:
        content.extractall(folder)
    (home,) = folder.iterdir()
    for program in (home / "bin").iterdir():
        program.chmod(0o755)  # zipfile drops the permissions
    for name in ("tmp", "data", "logs"):
        (folder / name).mkdir()
    return home


def _common_settings(folder: Path) -> dict[str, str]:
    return {
        "cluster.name": "task-profiler-tests",
        "cluster.routing.allocation.disk.threshold_enabled": "false",  # a full disk here says nothing about the product
        "discovery.type": "single-node",
        "network.host": "127.0.0.1",
        "path.data": str(folder / "data"),
        "path.logs": str(folder / "logs"),
    }


def _configure(config: Path, settings: Mapping[str, str]) -> None:
    (config / "elasticsearch.yml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))


def _environment(folder: Path, java: Path, java_options: Sequence[str]) -> dict[str, str]:
    home = os.environ.get("JAVA_HOME") or str(java.resolve().parent.parent)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "ES_JAVA_HOME": home,
        "ES_JAVA_OPTS": " ".join(java_options),
        "JDK_JAVA_OPTIONS": "-XX:-UsePerfData",  # also for the programs that start the server
        "ES_TMPDIR": str(folder / "tmp"),
    }


def _give_away(folder: Path) -> str | None:
    """Give the folder to the user that the server is to run as, and return that user; None when it need not change."""
    if os.geteuid() != 0:
        return None
    try:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, user=_UNPRIVILEGED)
    except LookupError as error:
        raise ServerMissingError(f"Elasticsearch does not run as root, and there is no user {_UNPRIVILEGED}") from error
    return _UNPRIVILEGED

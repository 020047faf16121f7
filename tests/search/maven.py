"""Fetches the search servers with Maven into the user's cache folder, once for each version.

The servers are published as ordinary Maven artifacts. They are kept in a local Maven repository of our own below the
cache folder, so that a second run fetches nothing; Maven checks what it gets against the published checksums.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """What Maven calls coordinates."""

    group: str
    name: str
    version: str

    @property
    def file_stem(self) -> str:
        """Return the name of the artifact's files without their ending."""
        return f"{self.name}-{self.version}"


def default_cache() -> Path:
    """Return the folder where what was fetched is kept between runs."""
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent) / "task-profiler" / "search"


def fetch_zip(artifact: Artifact, cache: Path | None = None) -> Path:
    """Return the artifact's zip, fetched at the first call on this machine."""
    cache = cache or default_cache()
    folders = artifact.group.split(".")
    found = _repository(cache).joinpath(*folders, artifact.name, artifact.version, f"{artifact.file_stem}.zip")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # two test processes must not fetch at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():  # Maven renames a file to its name when it is whole
            coordinates = f"{artifact.group}:{artifact.name}:{artifact.version}:zip"
            _maven(cache, "get", f"-Dartifact={coordinates}", "-Dtransitive=false")
    return found


def fetch_jars(artifact: Artifact, cache: Path | None = None) -> Path:
    """Return a folder with the artifact's jar and all that it depends on, fetched at the first call."""
    cache = cache or default_cache()
    found = cache / artifact.file_stem
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as name:
                pom = Path(name) / "pom.xml"
                pom.write_text(_POM.format(group=artifact.group, name=artifact.name, version=artifact.version))
                jars = Path(name) / "jars"
                _maven(
                    cache,
                    *("copy-dependencies", f"--file={pom}"),
                    *(f"-DoutputDirectory={jars}", "-DincludeScope=runtime"),
                )
                jars.rename(found)
    return found


def require_program(name: str) -> Path:
    """Return the path of a program; raise ServerMissingError when it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise ServerMissingError(f"the program {name} is not installed")
    return Path(found)


def _repository(cache: Path) -> Path:
    return cache / "maven"


def _maven(cache: Path, goal: str, *arguments: str) -> None:
    command = [
        *(str(require_program("mvn")), "--batch-mode", "--quiet", "--strict-checksums"),
        "--update-snapshots",  # despite its name it also forgets earlier failures to fetch
        f"-Dmaven.repo.local={_repository(cache)}",
        f"{_PLUGIN}:{goal}",
        *arguments,
    ]
    try:
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServerMissingError(f"Maven had not fetched it after {_FETCH_SECONDS:g} s: {arguments[0]}") from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[:_SHOWN_LINES]
        raise ServerMissingError("Maven could not fetch it:\n" + "\n".join(lines))

"""A ``docker`` for tests, which records its command lines and builds nothing."""

import json
import os
from pathlib import Path

BUILDER = """\
Name:   default
Driver: {driver}

Nodes:
Name:             default
Status:           running
Platforms:        {platforms}
"""
# login records its standard input and the configuration, build records the context.
_SCRIPT = """\
#!/bin/sh
echo "$*" >> {folder}/commands
case "$1 $2" in
  "version --format") {version};;
  "buildx version") exit {no_buildx};;
  "buildx inspect") cat {folder}/builder;;
  "info --format") cat {folder}/store;;
  "login --username") cat > {folder}/password; cp -R "$DOCKER_CONFIG" {folder}/config; {at_login}; exit {login};;
  "build --file"|"buildx build") for context do :; done
    mkdir {folder}/context; cp -R "$context"/taskdef "$context"/*.whl {folder}/context; {at_build}; exit {build};;
  "push "*) {push};;
esac
"""


class FakeDocker:
    """The program in ``folder``/bin, which records in ``folder``.

    ``version``, ``at_login``, ``at_build`` and ``push`` are the shell commands that it runs for these
    words; without ``platforms`` there is no plugin buildx.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = "echo 28.2.2",
        platforms: str | None = None,
        driver: str = "docker",
        store: str = "null",
        login: int = 0,
        build: int = 0,
        at_login: str = ":",
        at_build: str = ":",
        push: str = ":",
    ) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        (folder / "builder").write_text(BUILDER.format(driver=driver, platforms=platforms))
        (folder / "store").write_text(store)
        script = _SCRIPT.format(
            folder=folder,
            version=version,
            no_buildx=int(platforms is None),
            login=login,
            at_login=at_login,
            build=build,
            at_build=at_build,
            push=push,
        )
        (self.programs / "docker").write_text(script)
        (self.programs / "docker").chmod(0o755)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(self.folder),
        }

    def commands(self, *skipped: str) -> list[str]:
        """The command lines so far, without those that begin with one of these words."""
        path = self.folder / "commands"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith(skipped or ("\0",))]

    def password(self) -> str:
        return (self.folder / "password").read_text()

    def configuration(self) -> object:
        return json.loads((self.folder / "config" / "config.json").read_text())

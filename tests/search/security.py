"""Turns on the security of the distribution: one user of the file realm, and a plugin that API keys need.

The distribution lacks the analysis module, without which Elasticsearch cannot make the index where it keeps API keys,
users and roles. A plugin of a few lines knows the names that this index asks for.
"""

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from tests.search.maven import require_program
from tests.search.server import Credentials

ADMIN: Final = Credentials(name="admin", password="admin-of-the-tests")
SETTINGS: Final = {
    "xpack.security.enabled": "true",
    "xpack.security.authc.api_key.enabled": "true",
    "xpack.security.http.ssl.enabled": "false",
    "xpack.security.transport.ssl.enabled": "false",
}

_SOURCE: Final = Path(__file__).with_name("SecurityIndexPlugin.java")
_COMPILE_SECONDS: Final = 60.0
_DESCRIPTOR: Final = """\
name=security-index
description=Names that the index of API keys asks for
version=1
elasticsearch.version={version}
java.version=11
classname=SecurityIndexPlugin
"""


def secure(home: Path, version: str) -> None:
    """Prepare an unpacked distribution; the settings are written by the caller."""
    _add_admin(home / "config")
    _add_plugin(home, version)


def _add_admin(config: Path) -> None:
    digest = hashlib.sha1(ADMIN.password.encode()).digest()  # of their hashes, one that Python has too
    (config / "users").write_text(f"{ADMIN.name}:{{SHA}}{base64.b64encode(digest).decode()}\n")
    (config / "users_roles").write_text(f"superuser:{ADMIN.name}\n")


def _add_plugin(home: Path, version: str) -> None:
    folder = home / "plugins" / "security-index"
    classes = home.parent / "classes"
    command = (
        str(require_program("javac")),
        "-J-XX:-UsePerfData",
        "-nowarn",
        "-cp",
        f"{home}/lib/*",
        "-d",
        str(classes),
        str(_SOURCE),
    )
    subprocess.run(command, timeout=_COMPILE_SECONDS, check=True)
    folder.mkdir()
    (folder / "plugin-descriptor.properties").write_text(_DESCRIPTOR.format(version=version))
    with zipfile.ZipFile(folder / "security-index.jar", "w") as jar:
        for path in classes.iterdir():
            jar.write(path, path.name)

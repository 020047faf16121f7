"""``task-profiler kibana``: wires the set-up of a cluster."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import requests

from profiler.errors import TaskProfilerError, UsageError
from profiler.search_setup import DEFAULT_PREFIX, Answer, Engine, Files, Method, set_up

_SECONDS = 30
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)
_POLICY_FILES: Mapping[Engine, str] = {"elasticsearch": "elasticsearch-ilm.json", "opensearch": "opensearch-ism.json"}


@click.group("kibana")
def command() -> None:
    """Set up what the reports need in Elasticsearch or OpenSearch."""


@command.command(
    "import", epilog="Example: task-profiler kibana import --elasticsearch https://search.example.com --dry-run"
)
@click.option(
    "--elasticsearch",
    "url",
    metavar="URL",
    help="Elasticsearch or OpenSearch (default: ELASTICSEARCH_URL).",
)
@click.option("--prefix", metavar="P", default=DEFAULT_PREFIX, show_default=True, help="Beginning of all index names.")
@click.option("--api-key", metavar="KEY", help="Sign in by API key (default: the forwarder's variable).")
@click.option(
    "--user", metavar="NAME:PASSWORD", help="Sign in by name (default: ELASTICSEARCH_USERNAME and _PASSWORD)."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be installed.")
def import_(url: str | None, prefix: str, api_key: str | None, user: str | None, dry_run: bool) -> None:
    """Install index templates and, where the server has them, lifecycle policies.

    Doing it again changes nothing. The dashboards are not part of this version.
    """
    address = url or os.environ.get("ELASTICSEARCH_URL")
    if not address:
        raise UsageError("There is no cluster to set up: give --elasticsearch URL, or set ELASTICSEARCH_URL.")
    if not _PREFIX.fullmatch(prefix):
        raise UsageError("--prefix cannot begin an index's name: use lower-case letters, digits, '_', '-' and '.'.")
    server = _Server(address, _sign_in(api_key, user, os.environ))
    for step in set_up(server, _files(), prefix=prefix, dry_run=dry_run):
        verb = ("would install" if dry_run else "installed") if step.done else "left out"
        click.echo(f"{verb}: {step.what}")


class _Server:
    """A cluster by requests."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self._url = url.rstrip("/")
        self._session = session

    def ask(self, method: Method, path: str, body: object | None = None) -> Answer:
        """See profiler.search_setup."""
        try:
            response = self._session.request(method, self._url + path, json=body, timeout=_SECONDS)
        except requests.RequestException as error:
            raise TaskProfilerError(
                f"The cluster cannot be reached ({type(error).__name__}): check its URL."
            ) from error
        try:
            content: Any = response.json()
        except requests.JSONDecodeError:
            content = None
        return Answer(status=response.status_code, body=content)


def _sign_in(api_key: str | None, user: str | None, environment: Mapping[str, str]) -> requests.Session:
    session = requests.Session()
    key = api_key or environment.get("ELASTICSEARCH_API_KEY")
    name, colon, password = (user or "").partition(":")
    if user is not None and not colon:
        raise UsageError("--user is no NAME:PASSWORD: put a colon between them.")
    if user is None:
        name, password = environment.get("ELASTICSEARCH_USERNAME", ""), environment.get("ELASTICSEARCH_PASSWORD", "")
    if key and user is None:
        session.headers["Authorization"] = f"ApiKey {key}"
    elif name:
        session.auth = (name, password)
    return session


def _files() -> Files:
    """From the installed package, or from the repository where it is installed editable."""
    package = Path(__file__).resolve().parent.parent
    folder = next((found for found in (package / "kibana", package.parent / "kibana") if found.is_dir()), None)
    if folder is None:
        raise TaskProfilerError("The index templates are missing from this installation: install the package again.")
    templates = {
        path.stem: json.loads(path.read_text()) for path in sorted((folder / "index-templates").glob("*.json"))
    }
    policies = {engine: json.loads((folder / "lifecycle" / name).read_text()) for engine, name in _POLICY_FILES.items()}
    return Files(templates=templates, policies=policies)

"""``task-profiler kibana``: sets up a cluster and imports the dashboards."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import click

from profiler.cli.interruption import hold_stop_signals
from profiler.cli.options import WholeSentenceGroup, aws_options, flag, option
from profiler.cli.printing import say_sentence, write_json_lines
from profiler.cli.wiring.aws_options import search_session
from profiler.core.aws_signature import NO_SERVERLESS, SERVERLESS, signing_service
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.index_names import DEFAULT_PREFIX, INDEX_PERIODS
from profiler.core.optional_math import known
from profiler.search_setup.template_install import install_templates, setup_files

if TYPE_CHECKING:  # requests, which the help does not need
    from profiler.search_setup.dashboard_import import Flavour
    from profiler.search_setup.search_servers import ClusterServer, DashboardsServer

_Server: TypeAlias = "ClusterServer | DashboardsServer"
_ShowStep: TypeAlias = Callable[[str, str], None]  # of what was done, and to what
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)


@click.group(
    "kibana",
    cls=WholeSentenceGroup,
    epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run",
)
def kibana() -> None:
    """Set up Elasticsearch or OpenSearch, and their dashboards."""


@kibana.command(
    "import",
    epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run",
)
@option("--url ui_url", "URL", "URL of Kibana or OpenSearch Dashboards.")
@option(
    "--elasticsearch url",
    "URL",
    "The cluster (default: ELASTICSEARCH_URL).",
    envvar="ELASTICSEARCH_URL",
)
@option("--prefix", "P", "Prefix of the index names.", default=DEFAULT_PREFIX)
@aws_options
@option(
    "--flavour",
    "",
    "Kind of dashboards (default: by the server's version).",
    type=click.Choice(["classic", "lens"]),
)
@flag("--keep-existing", "Import only missing dashboards and charts.")
@flag("--dry-run", "Print what would be installed, without installing it.")
@flag("--json as_json", "Print one JSON object for each step.")
def import_(
    *,
    ui_url: str | None,
    url: str | None,
    prefix: str,
    region: str | None,
    profile: str | None,
    flavour: "Flavour | None",
    keep_existing: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Install index templates, the first empty indices, lifecycle policies and dashboards.

    Without --elasticsearch, the templates are installed through the console of the dashboard
    server. Repeating the command restores the original dashboards unless --keep-existing is given.
    """
    cluster, ui = _open_servers(url or None, ui_url, prefix, region, profile)
    with _show_steps(as_json=as_json) as show:
        if ui is None:
            _install_templates(cluster, prefix=prefix, dry_run=dry_run, show=show)
        else:
            _install_all(
                cluster,
                ui,
                show,
                prefix=prefix,
                flavour=flavour,
                keep_existing=keep_existing,
                dry_run=dry_run,
            )


@contextmanager
def _show_steps(*, as_json: bool) -> Iterator[_ShowStep]:
    """Yield what prints a step, and ends the command after it if Ctrl-C was pressed."""
    with hold_stop_signals("It stops after the step that is in work.") as stop:

        def show(action: str, what: str) -> None:
            if as_json:
                write_json_lines([{"action": action, "what": what}])
            else:
                say_sentence(f"{action}: {what}")
            stop.raise_if_stopped()

        yield show


def _install_all(
    cluster: _Server,
    ui: "DashboardsServer",
    show: _ShowStep,
    *,
    prefix: str,
    flavour: "Flavour | None",
    keep_existing: bool,
    dry_run: bool,
) -> None:
    """Install the templates and the dashboards, and show each step. Raises TaskProfilerError."""
    from profiler.search_setup import dashboard_import as dashboards  # requests

    version = dashboards.read_version(ui)
    chosen = dashboards.choose_flavour(version, flavour)
    objects = dashboards.fit_objects(dashboards.dashboard_objects(chosen, prefix), version)
    existing = dashboards.existing_objects(ui, objects)
    if existing is None and keep_existing:
        raise TaskProfilerError(
            "The server does not list its dashboards: import without --keep-existing."
        )
    # A server without a console can still have dashboards.
    _install_templates(
        cluster, prefix=prefix, dry_run=dry_run, show=show, is_optional=cluster is ui
    )
    if existing and keep_existing:
        objects = [item for item in objects if (item["type"], item["id"]) not in existing]
        show("kept", f"{len(existing)} existing objects")
    elif existing != frozenset():
        verb = "would overwrite" if dry_run else "overwriting"
        count = known(len, existing) or "all"
        show(verb, f"{count} existing objects and your edits of them; --keep-existing keeps them")
    if objects and not dry_run:
        dashboards.import_dashboards(ui, objects, chosen)
    if objects or dry_run:
        show("would import" if dry_run else "imported", f"{len(objects)} objects ({chosen})")


def _open_servers(
    url: str | None, ui_url: str | None, prefix: str, region: str | None, profile: str | None
) -> "tuple[_Server, DashboardsServer | None]":
    """The cluster, by the console of the dashboards' server if it has no address, and that
    server.
    """
    from profiler.search_setup.search_servers import ClusterServer, DashboardsServer  # requests

    if url and signing_service(url, os.environ) == SERVERLESS:
        raise UsageError(NO_SERVERLESS)
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(
            "--prefix is not valid in an index name: use lower-case letters, digits, '_', '-' "
            "and '.'."
        )
    ui: DashboardsServer | None = None
    if ui_url:
        ui = DashboardsServer(ui_url, search_session(ui_url, region, profile, os.environ))
    cluster: _Server | None = ui
    if url:
        cluster = ClusterServer(url, search_session(url, region, profile, os.environ))
    if cluster is None:
        raise UsageError("There is no server to work on: give --url, --elasticsearch, or both.")
    return cluster, ui


def _install_templates(
    server: _Server,
    *,
    prefix: str,
    dry_run: bool,
    show: _ShowStep,
    is_optional: bool = False,
) -> None:
    """Install templates, policies and indices, and show each step.

    ``is_optional``: a failure is a warning. Raises UsageError, TaskProfilerError.
    """
    period = (os.environ.get("INDEX_PERIOD", "").strip() or "month").lower()
    if period not in INDEX_PERIODS:
        raise UsageError("INDEX_PERIOD must be month or day.")
    now = datetime.now(UTC)
    files = setup_files()
    try:
        for step in install_templates(
            server, files, prefix=prefix, now=now, dry_run=dry_run, period=period
        ):
            if not step.done:
                show("skipped", step.what)
            elif dry_run:
                show("would install", step.what)
            else:
                show("installed", step.what)
    except TaskProfilerError as error:
        if not is_optional:
            raise
        click.echo(
            f"not installed: index templates; give --elasticsearch URL to install them ({error})",
            err=True,
        )

"""``task-profiler kibana``: sets up a cluster and imports the dashboards."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from profiler.cli.options import ca_file_option, search_options
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.search_setup.dashboard_import import (
    Flavour,
    choose_flavour,
    dashboard_objects,
    existing_objects,
    import_dashboards,
    read_version,
)
from profiler.search_setup.search_servers import ClusterServer, DashboardsServer, open_session
from profiler.search_setup.template_install import (
    INDEX_PERIODS,
    SearchServer,
    SetupStep,
    install_templates,
    setup_files,
)
from profiler.search_setup.version_fit import fit_objects

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)


@click.group("kibana", epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run")
def command() -> None:
    """Set up Elasticsearch or OpenSearch, and their dashboards."""


@command.command("import", epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run")
@click.option("--url", "ui_url", metavar="URL", help="URL of Kibana or OpenSearch Dashboards.")
@click.option(
    "--elasticsearch", "url", metavar="URL", help="URL of Elasticsearch or OpenSearch (default: ELASTICSEARCH_URL)."
)
@search_options
@ca_file_option
@click.option(
    "--flavour",
    type=click.Choice(["classic", "lens"]),
    help="Kind of dashboards (default: depends on the server's version).",
)
@click.option("--keep-existing", is_flag=True, help="Import only missing dashboards and charts.")
@click.option("--dry-run", is_flag=True, help="Print what would be installed, without installing it.")
def import_(
    *,
    ui_url: str | None,
    url: str | None,
    prefix: str,
    flavour: Flavour | None,
    api_key: str | None,
    user: str | None,
    ca_file: str | None,
    keep_existing: bool,
    dry_run: bool,
) -> None:
    """Install index templates, this month's empty indices, lifecycle policies and dashboards.

    Without --elasticsearch, the templates are installed through the console of the dashboard server.
    Repeating the command restores the original dashboards unless --keep-existing is given.
    """
    address = url or os.environ.get("ELASTICSEARCH_URL")
    if not address and not ui_url:
        raise UsageError("Nothing to set up: give --url, --elasticsearch, or both.")
    if not _PREFIX.fullmatch(prefix):
        raise UsageError("--prefix is not valid in an index name: use lower-case letters, digits, '_', '-' and '.'.")
    session = open_session(api_key, user, os.environ, ca_file)
    credentials = "--user" if user else "--api-key" if api_key else None
    if ui_url is None:
        cluster = ClusterServer(address or "", session)
        _report_unused(credentials, cluster)
        _install_templates(cluster, prefix=prefix, dry_run=dry_run)
        return
    ui = DashboardsServer(ui_url, session)
    version = read_version(ui)
    chosen = choose_flavour(version, flavour)
    _report_unused(credentials, ui)
    objects = fit_objects(dashboard_objects(chosen, prefix), version)
    existing = existing_objects(ui, objects)
    if existing is None and keep_existing:
        raise TaskProfilerError("The server does not list its dashboards: import without --keep-existing.")
    if address:
        _install_templates(ClusterServer(address, session), prefix=prefix, dry_run=dry_run)
    else:  # a server without a console can still have dashboards
        _install_templates(ui, prefix=prefix, dry_run=dry_run, is_optional=True)
    if existing and keep_existing:
        objects = [item for item in objects if (item["type"], item["id"]) not in existing]
        click.echo(f"kept: {len(existing)} existing objects")
    elif existing != frozenset():
        verb = "would overwrite" if dry_run else "overwriting"
        count = "all" if existing is None else len(existing)
        click.echo(f"{verb}: {count} existing objects and your edits of them; --keep-existing keeps them")
    _install_dashboards(ui, objects, chosen, dry_run=dry_run)


def _report_unused(credentials: str | None, server: ClusterServer | DashboardsServer) -> None:
    if credentials is not None and server.accepts_anonymous_requests():
        click.echo(f"not used: {credentials}; this server accepts requests without sign-in", err=True)


def _install_templates(server: SearchServer, *, prefix: str, dry_run: bool, is_optional: bool = False) -> None:
    """Install the templates. With ``is_optional``, an error is a warning."""
    period = (os.environ.get("INDEX_PERIOD", "").strip() or "month").lower()
    if period not in INDEX_PERIODS:
        raise UsageError("INDEX_PERIOD must be month or day.")
    steps = install_templates(
        server, setup_files(), prefix=prefix, now=datetime.now(UTC), dry_run=dry_run, period=period
    )
    for step in _warn_on_error(steps) if is_optional else steps:
        verb = ("would install" if dry_run else "installed") if step.done else "skipped"
        click.echo(f"{verb}: {step.what}")


def _warn_on_error(steps: Iterator[SetupStep]) -> Iterator[SetupStep]:
    try:
        yield from steps
    except TaskProfilerError as error:
        click.echo(f"not installed: index templates; give --elasticsearch URL to install them ({error})", err=True)


def _install_dashboards(
    ui: DashboardsServer, objects: list[dict[str, Any]], flavour: Flavour, *, dry_run: bool
) -> None:
    if dry_run:
        click.echo(f"would import: {len(objects)} objects ({flavour})")
    elif objects:
        import_dashboards(ui, objects, flavour)
        click.echo(f"imported: {len(objects)} objects ({flavour})")

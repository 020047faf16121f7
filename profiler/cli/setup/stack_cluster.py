"""The search cluster of ``setup stack``: which product it is, and its index templates."""

import os
from datetime import UTC, datetime

import click

from profiler.cli.printing import warn
from profiler.core.errors import TaskProfilerError
from profiler.search_setup.search_servers import ClusterServer, open_session
from profiler.search_setup.template_install import Engine, detect_engine, install_templates, setup_files


class SearchCluster:
    """A cluster that this machine may not reach, as the functions can be in another network.

    Args:
        url: The cluster.
        api_key: Signs in.
        user: ``NAME:PASSWORD``.
    """

    def __init__(self, url: str, api_key: str | None, user: str | None) -> None:
        self._url = url
        self._server = ClusterServer(url, open_session(api_key, user, os.environ))
        self.engine: Engine | None = None

    def find_engine(self) -> None:
        """Ask the cluster for its product. If it does not answer, print a warning."""
        try:
            self.engine = detect_engine(self._server)
        except TaskProfilerError as error:
            self._warn(error)

    def install(self, prefix: str) -> None:
        """Install the index templates, and print how many steps were done; a failure prints a warning."""
        done = 0
        if self.engine is None:
            return
        try:
            for step in install_templates(
                self._server, setup_files(), prefix=prefix, now=datetime.now(UTC), dry_run=False
            ):
                done += step.done
        except TaskProfilerError as error:
            self._warn(error)
        else:
            click.echo(f"installed: {done} index templates, policies and indices")

    def _warn(self, error: TaskProfilerError) -> None:
        warn(
            f"The index templates are not installed; run task-profiler kibana import --elasticsearch {self._url} where "
            f"the cluster can be reached, before the first report ({error})"
        )

"""Diagnoses the search cluster behind a forwarder: index templates and dashboards."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler.core.errors import TaskProfilerError
from profiler.doctor.findings import Finding, note, ok, problem
from profiler.search_setup.dashboard_import import existing_objects
from profiler.search_setup.search_servers import DashboardsServer
from profiler.search_setup.template_install import SearchServer, detect_engine

_TEMPLATES, _DASHBOARDS = "templates", "dashboards"
_IMPORT = "Install them: task-profiler kibana import."


def template_findings(server: SearchServer, names: Iterable[str]) -> Iterator[Finding]:
    """Whether the cluster answers and has these index templates."""
    try:
        engine = detect_engine(server)
        missing = [name for name in names if not server.request("GET", f"/_index_template/{name}").ok]
    except TaskProfilerError as error:
        yield problem(_TEMPLATES, str(error))
        return
    if missing:
        yield problem(_TEMPLATES, f"The {engine} cluster lacks the index templates {', '.join(missing)}.", _IMPORT)
    else:
        yield ok(_TEMPLATES, f"The {engine} cluster has the index templates.")


def dashboard_findings(ui: DashboardsServer, objects: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether the server has these saved objects."""
    try:
        existing = existing_objects(ui, objects)
    except TaskProfilerError as error:
        yield problem(_DASHBOARDS, str(error))
        return
    if existing is None:
        yield note(_DASHBOARDS, "The server does not list its dashboards.", "Look for them in its user interface.")
    elif len(existing) < len(objects):
        text = f"{len(objects) - len(existing)} of {len(objects)} dashboards and charts are missing."
        yield problem(_DASHBOARDS, text, _IMPORT)
    else:
        yield ok(_DASHBOARDS, f"All {len(objects)} dashboards and charts are installed.")

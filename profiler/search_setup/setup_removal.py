"""Removes what ``kibana import`` has installed, and nothing else: by names and IDs, never by patterns.

Indices with documents stay unless they are asked for, and so does the lifecycle policy that deletes them later.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings
from profiler.record.units import format_count
from profiler.search_setup.dashboard_import import existing_objects
from profiler.search_setup.search_servers import DashboardsServer
from profiler.search_setup.template_install import (
    POLICY,
    LifecyclePolicy,
    SearchServer,
    ServerResponse,
    detect_product,
    prefixed_name,
    rejection,
)


class Removal(Struct, frozen=True, kw_only=True):
    """Something that is installed. ``delete`` deletes it; None: it stays, for the reason that ``what`` names."""

    what: str
    delete: Callable[[], ServerResponse] | None


def cluster_removals(
    server: SearchServer, templates: Iterable[str], *, prefix: str, with_data: bool
) -> Iterator[Removal]:
    """What is to be removed from a cluster: indices, the index templates with these names, the lifecycle policy."""
    product = detect_product(server)
    names = [prefixed_name(name, prefix) for name in templates]
    has_data = False
    for index, documents in sorted(_indices(server, names).items()):
        is_kept = documents != "0" and not with_data
        has_data |= is_kept
        count = format_count(int(documents), "document") if documents else "closed"
        delete = None if is_kept else partial(server.request, "DELETE", f"/{index}")
        yield Removal(what=f"index {index} ({count})", delete=delete)
    for name in names:
        path = f"/_index_template/{name}"
        found = server.request("GET", path)
        if found.ok:
            installed = [mapping(each.get("index_template")) for each in mappings(found.body.get("index_templates"))]
            is_ours = any(mapping(each.get("_meta")).get("managed_by") == "task-profiler" for each in installed)
            what = f"index template {name}{'' if is_ours else ' (of somebody else)'}"
            yield Removal(what=what, delete=partial(server.request, "DELETE", path) if is_ours else None)
    policy = LifecyclePolicy(server, product.engine, prefixed_name(POLICY, prefix))
    if server.request("GET", policy.path).ok:
        reason = " (it deletes the indices that stay when they are 400 days old)" if has_data else ""
        delete = None if has_data else partial(server.request, "DELETE", policy.path)
        yield Removal(what=f"lifecycle policy {policy.name}{reason}", delete=delete)


def _indices(server: SearchServer, names: Sequence[str]) -> Mapping[str, str | None]:
    """The indices of months and days, with the number of their documents; None: the index is closed."""
    patterns = ",".join(f"{name}-*" for name in names)
    server.request("POST", f"/{patterns}/_refresh")  # else the newest documents do not count
    response = server.request("GET", f"/_cat/indices/{patterns}?format=json&h=index,docs.count&expand_wildcards=all")
    if not (response.ok and isinstance(response.body, list)):
        raise TaskProfilerError(f"The indices cannot be listed ({rejection(response)}): check the sign-in's rights.")
    ours = re.compile(rf"({'|'.join(map(re.escape, names))})-\d{{4}}\.\d\d(\.\d\d)?", re.ASCII)
    return {row["index"]: row.get("docs.count") for row in response.body if ours.fullmatch(row["index"])}


def dashboard_removals(ui: DashboardsServer, objects: Sequence[Mapping[str, Any]]) -> Iterator[Removal]:
    """What is to be removed of these saved objects, dashboards first."""
    existing = existing_objects(ui, objects)
    if existing is None:
        raise TaskProfilerError("The server does not list its dashboards: delete them in its user interface.")
    for saved_object in sorted(objects, key=lambda item: item["type"] != "dashboard"):
        kind, identity = saved_object["type"], saved_object["id"]
        if (kind, identity) in existing:
            title = saved_object["attributes"]["title"]
            yield Removal(what=f"{kind} {title}", delete=partial(ui.delete_object, kind, identity))


def remove(removal: Removal) -> None:
    """Delete it. Raises TaskProfilerError if the server refuses; an object that is gone already is not an error."""
    response = removal.delete() if removal.delete is not None else None
    if response is not None and not response.ok and response.status != 404:  # noqa: PLR2004
        raise TaskProfilerError(f"The {removal.what} was not removed ({rejection(response)}).")

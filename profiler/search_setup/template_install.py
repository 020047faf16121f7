"""Installs index templates, the first indices and, if the server supports them, lifecycle
policies.

Repeating the installation changes nothing. Elasticsearch attaches a lifecycle policy (ILM) through
a setting in the index template. Servers without ILM reject this setting, so it is added only if the
policy is there, or if the template has one. An OpenSearch policy (ISM) contains its index patterns.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from profiler.core.files import package_data_folder
from profiler.core.index_names import DEFAULT_PREFIX, IndexKind, IndexNames, IndexPeriod
from profiler.core.json_fields import count_or_none, field_at, mapping_or_empty, mappings_in_list
from profiler.core.search_answers import balanced_zones, zones_remedy
from profiler.search_setup.cluster_requests import (
    Engine,
    RejectedError,
    SearchServer,
    TemplateStep,
    detect_product,
    put_or_raise,
    rejection_text,
)
from profiler.search_setup.lifecycle_policy import LifecyclePolicy

_POLICY = "task-profiler"
_PATTERN = re.compile(rf"\b{DEFAULT_PREFIX}-(\w+)-\*")
_POLICY_FILES: Mapping[Engine, str] = {
    "elasticsearch": "elasticsearch-ilm.json",
    "opensearch": "opensearch-ism.json",
}
_REPLICAS = "auto_expand_replicas"
# The indices behind the data views of the dashboards: as long as one does not exist, its panels are
# errors.
_FIRST_INDICES: tuple[IndexKind, ...] = ("reports", "checkpoints", "notices")


class SetupFiles(Struct, frozen=True, kw_only=True):
    """The installed content: index templates by name, and the lifecycle policy of each engine."""

    templates: Mapping[str, Mapping[str, Any]]
    policies: Mapping[Engine, Mapping[str, Any]]


def setup_folder() -> Path:
    """The folder of the templates, policies and dashboards of this installation."""
    return package_data_folder("kibana", what="The index templates are")


def setup_files() -> SetupFiles:
    """The index templates and lifecycle policies of this installation."""
    folder = setup_folder()
    paths = sorted((folder / "index-templates").glob("*.json"))
    templates = {path.stem: json.loads(path.read_text()) for path in paths}
    policies = {
        engine: json.loads((folder / "lifecycle" / name).read_text())
        for engine, name in _POLICY_FILES.items()
    }
    return SetupFiles(templates=templates, policies=policies)


def install_templates(
    server: SearchServer,
    files: SetupFiles,
    *,
    prefix: str,
    now: datetime,
    dry_run: bool,
    period: str = "month",
) -> Iterator[TemplateStep]:
    """Install the policy and the templates, mend existing indices, then create an empty index of
    the period for each kind of which there is none.

    Raises TaskProfilerError.
    """
    product = detect_product(server)
    engine = product.engine
    policy = LifecyclePolicy(server, product, prefixed_name(_POLICY, prefix))
    if policy.is_supported and not dry_run:
        policy.install(with_index_prefix(json.dumps(files.policies[engine]), prefix))
    what = f"lifecycle policy {policy.name}{policy.absence}"
    yield TemplateStep(what=what, done=not policy.absence)
    ours: dict[str, Mapping[str, Any]] = {}
    for name, template in files.templates.items():
        full_name = prefixed_name(name, prefix)
        body = with_index_prefix(json.dumps(template), prefix)
        ours[full_name] = body
        settings = body["template"]["settings"]["index"]
        if product.is_serverless:
            for setting in ("number_of_shards", _REPLICAS):  # it rejects them
                settings.pop(setting, None)
        lifecycle = policy.template_settings(full_name)
        if lifecycle:
            settings["lifecycle"] = lifecycle
        what = f"index template {full_name}"
        if not dry_run:
            what += _put_template(server, full_name, body)
        yield TemplateStep(what=what, done=True)
    yield from _overriding_templates(server, ours, now)
    # Before the new indices, to which OpenSearch gives the policy a moment after their creation.
    if policy.is_supported:
        patterns = [pattern for body in ours.values() for pattern in body["index_patterns"]]
        yield from policy.update_indices(patterns, dry_run=dry_run)
    indices = IndexNames(prefix=prefix, period=cast("IndexPeriod", period))
    for kind in _FIRST_INDICES:
        if not _has_index(server, f"{prefix}-{kind}-*"):
            yield from _create_index(server, indices.index_name(kind, now), dry_run=dry_run)


def _put_template(server: SearchServer, name: str, body: Mapping[str, Any]) -> str:
    """Write a template; returns what is different from the template of this installation.

    With balanced zones, OpenSearch refuses a number of copies that is no multiple of the zones.
    Amazon OpenSearch Service has a default number of replicas that is one.
    """
    path = f"/_index_template/{name}"
    what = f"index template {name}"
    try:
        put_or_raise(server, path, body, what)
    except RejectedError as error:
        zones = balanced_zones(str(error))
        settings: dict[str, Any] = body["template"]["settings"]["index"]
        if not zones or settings.pop(_REPLICAS, None) is None:
            raise
    else:
        return ""
    try:
        put_or_raise(server, path, body, what)
    except RejectedError as error:
        raise RejectedError(f"{error} {zones_remedy(zones)}") from error
    return f" without {_REPLICAS}: the cluster's default replicas fit its {zones} zones"


def _overriding_templates(
    server: SearchServer, ours: Mapping[str, Mapping[str, Any]], now: datetime
) -> Iterator[TemplateStep]:
    """Name somebody else's template that new indices get instead of ours, without our mappings: of
    those whose patterns match, a cluster takes the one with the highest priority alone.
    """
    listed = server.request("GET", "/_index_template")
    theirs = [
        template
        for template in mappings_in_list(mapping_or_empty(listed.body).get("index_templates"))
        if template.get("name") not in ours
    ]
    for name, body in ours.items():
        index = body["index_patterns"][0].replace("*", f"{now:%Y.%m}")
        above = [
            (_priority(other), template.get("name"))
            for template in theirs
            for other in (mapping_or_empty(template.get("index_template")),)
            if _priority(other) > _priority(body)
            and any(fnmatchcase(index, pattern) for pattern in _patterns(other))
        ]
        if not above:
            continue
        made = server.request("POST", f"/_index_template/_simulate_index/{index}")
        present = field_at(made.body, "template.mappings")
        if made.is_success and not _has_mapping(
            mapping_or_empty(present), body["template"]["mappings"]
        ):
            priority, other_name = max(above, key=itemgetter(0))
            what = (
                f"index template {name} in new indices: {other_name} with priority {priority} "
                "counts alone, and lacks its mappings; lower the priority, or copy the mappings"
            )
            yield TemplateStep(what=what, done=False)


def _has_mapping(present: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Whether a mapping has the fields that are wanted, with their types."""
    fields = mapping_or_empty(present.get("properties"))
    return present.get("type") == wanted.get("type") and all(
        _has_mapping(mapping_or_empty(fields.get(name)), mapping_or_empty(field))
        for name, field in mapping_or_empty(wanted.get("properties")).items()
    )


def _priority(template: Mapping[str, object]) -> int:
    return count_or_none(template.get("priority")) or 0


def _patterns(template: Mapping[str, object]) -> list[str]:
    listed = template.get("index_patterns")
    return list(map(str, listed)) if isinstance(listed, list) else []


def _has_index(server: SearchServer, pattern: str) -> bool:
    """Whether an open index, an alias or a data stream is known to match. Another one, of a month
    beside those of days, would hide that the others of its month are gone.
    """
    answer = server.request("GET", f"/_resolve/index/{pattern}")
    return answer.is_success and any(mapping_or_empty(answer.body).values())


def _create_index(server: SearchServer, name: str, *, dry_run: bool) -> Iterator[TemplateStep]:
    """Create the index if it is missing.

    The templates apply to it. Without the right to create it, they suffice. Raises RejectedError if
    the cluster's default number of replicas fits no index of ours.
    """
    if server.request("GET", f"/{name}").is_success:
        return
    if dry_run:
        yield TemplateStep(what=f"index {name}", done=True)
        return
    response = server.request("PUT", f"/{name}", {})
    if response.is_success:
        yield TemplateStep(what=f"index {name}", done=True)
    elif "resource_already_exists" not in str(response.body):  # the forwarder was faster
        why = rejection_text(response)
        zones = balanced_zones(why)
        if zones:  # of which the templates have a number of copies that fits
            raise RejectedError(f"The index {name} was refused ({why}). {zones_remedy(zones)}")
        what = f"index {name} ({why}): its panels are errors until it exists"
        yield TemplateStep(what=what, done=False)


def with_index_prefix(text: str, prefix: str) -> dict[str, Any]:
    """Parse an object of JSON, with the prefix in its index patterns, also in those within other
    texts.
    """
    parsed: dict[str, Any] = json.loads(_PATTERN.sub(rf"{prefix}-\1-*", text))
    return parsed


def prefixed_name(text: str, prefix: str) -> str:
    """The name of an index, a pattern, a template or a policy with this prefix instead of the
    default.
    """
    if text.startswith(f"{DEFAULT_PREFIX}-"):
        return prefix + text.removeprefix(DEFAULT_PREFIX)
    return text

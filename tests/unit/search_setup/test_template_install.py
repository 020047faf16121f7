"""The installation of templates, policies and indices."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.search_setup.cluster_requests import (
    Engine,
    Method,
    RejectedError,
    ServerResponse,
    TemplateStep,
    detect_product,
)
from profiler.search_setup.template_install import SetupFiles, install_templates, setup_files
from tests.cases import each_case

FILES = SetupFiles(
    templates={
        "task-reports": {
            "index_patterns": ["task-reports-*"],
            "template": {"settings": {"index": {}}},
        }
    },
    policies={
        "elasticsearch": {"policy": {"phases": {}}},
        "opensearch": {"policy": {"ism_template": [{"index_patterns": ["task-reports-*"]}]}},
    },
)


NOW = datetime(2026, 11, 22, tzinfo=UTC)
_VERSIONS = {
    "elasticsearch": {"number": "8.7.1"},
    "opensearch": {"number": "2.19.1", "distribution": "opensearch"},
}
# Of a server without lifecycle policies.
NO_HANDLER = ServerResponse(status=400, body={"error": "no handler found for uri [/_policy]"})
FORBIDDEN = ServerResponse(status=403, body={"error": {"reason": "not yours"}})


class FakeCluster:
    """A cluster of one engine, with lifecycle policies, or with a refusal of them.

    Stores the bodies of PUT requests.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        refusal: ServerResponse | None = None,
        refuses: str = "",
        reason: str = "bad mapping",
    ) -> None:
        self._engine = engine
        self.refusal = refusal
        self.allowed: set[Method] = set()  # what is not refused
        self.hides_templates = False
        self._refuses, self._reason = refuses, reason
        self.put: dict[str, Any] = {}
        self.indices: tuple[str, ...] = ()  # open ones that were there before
        self.aliases: tuple[str, ...] = ()
        self.templates: dict[str, Any] = {}  # those that were there before
        self.simulated: Mapping[str, Any] = {}  # what a new index gets, by our template's name

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        bare = path.partition("?")[0]
        if path == "/":
            return ServerResponse(status=200, body={"version": _VERSIONS[self._engine]})
        is_policy = "_ilm/policy" in path or "_ism/policies" in path
        if is_policy and self.refusal is not None and method not in self.allowed:
            return self.refusal
        if method == "GET" or "_simulate_index" in path:
            return self._get(bare)
        if self._refuses and self._refuses in path:
            return ServerResponse(status=400, body={"error": {"reason": self._reason}})
        if "_ism" in path and bare in self.put and "if_seq_no=3&if_primary_term=1" not in path:
            return ServerResponse(status=409, body={"error": {"reason": "version conflict"}})
        self.put[bare] = body
        return ServerResponse(status=200, body={"acknowledged": True})

    def _get(self, path: str) -> ServerResponse:
        if "/_settings/" in path or path.startswith("/_resolve/index/"):
            return ServerResponse(status=200, body=self._matching(path))
        if path == "/_index_template":
            listed = [
                {"name": name, "index_template": body} for name, body in self.templates.items()
            ]
            return ServerResponse(status=200, body={"index_templates": listed})
        if "_simulate_index" in path:
            template = self.simulated.get(path.rpartition("/")[2].rpartition("-")[0], {})
            return ServerResponse(status=200, body=template)
        is_template = path.startswith("/_index_template/")
        if self.hides_templates and is_template:
            return FORBIDDEN
        if path not in self.put:
            missing = {"error": {"reason": "Lifecycle policy not found: task-profiler"}}
            return ServerResponse(status=404, body=missing)
        found: dict[str, Any] = {"_seq_no": 3, "_primary_term": 1}
        if is_template:
            known = {"name": path.rpartition("/")[2], "index_template": self.put[path]}
            found = {"index_templates": [known]}
        return ServerResponse(status=200, body=found)

    def _matching(self, path: str) -> dict[str, Any]:
        """What matches a pattern, by kind. No index has the settings that are asked for."""
        if "/_settings/" in path:
            return {}
        start = path.rpartition("/")[2].removesuffix("*")
        return {
            "indices": [{"name": name} for name in self.indices if name.startswith(start)],
            "aliases": [{"name": name} for name in self.aliases if name.startswith(start)],
            "data_streams": [],
        }


def templates_and_policies(cluster: FakeCluster) -> set[str]:
    return {path for path in cluster.put if path.startswith("/_")}


def install(cluster: FakeCluster, *, prefix: str = "task") -> list[TemplateStep]:
    return list(install_templates(cluster, FILES, prefix=prefix, now=NOW, dry_run=False))


def test_elasticsearch_with_lifecycles_gets_them_through_the_template() -> None:
    cluster = FakeCluster("elasticsearch")
    assert [step.done for step in install(cluster)] == [True] * 5
    assert templates_and_policies(cluster) == {
        "/_ilm/policy/task-profiler",
        "/_index_template/task-reports",
    }
    template = cluster.put["/_index_template/task-reports"]
    assert template["template"]["settings"]["index"]["lifecycle"] == {"name": "task-profiler"}
    assert "lifecycle" not in FILES.templates["task-reports"]["template"]["settings"]["index"]


class ServerlessCluster(FakeCluster):
    """Elastic Cloud Serverless, which manages shards, replicas and lifecycles itself."""

    # "Index settings available in Elastic Cloud Serverless projects"
    SETTINGS = frozenset({"refresh_interval", "mapping"})

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        mode = "available when running in serverless mode"
        if path == "/":
            version = {"number": "8.11.0", "build_flavor": "serverless", "build_hash": "00000000"}
            return ServerResponse(status=200, body={"version": version})
        if path.startswith("/_ilm"):
            reason = f"Request for uri [{path}] with method [{method}] exists but is not {mode}"
            return ServerResponse(status=410, body={"error": {"reason": reason}})
        if isinstance(body, dict) and "template" in body:
            refused = ",".join(
                f"index.{name}"
                for name in body["template"]["settings"]["index"].keys() - self.SETTINGS
            )
            if refused:
                return ServerResponse(
                    status=400, body={"error": {"reason": f"Settings [{refused}] are not {mode}"}}
                )
        return super().request(method, path, body)


def test_elastic_cloud_serverless_gets_the_templates_without_shards_and_replicas() -> None:
    cluster, files = ServerlessCluster("elasticsearch"), setup_files()
    policy, *steps = install_templates(cluster, files, prefix="task", now=NOW, dry_run=False)
    assert not policy.done
    assert all(step.done for step in steps)
    assert len(templates_and_policies(cluster)) == len(files.templates) == 4
    reports = cluster.put["/_index_template/task-reports"]["template"]
    assert reports["mappings"] == files.templates["task-reports"]["template"]["mappings"]
    assert reports["settings"]["index"].keys() == {"refresh_interval", "mapping"}


each_engine = each_case("engine", ["elasticsearch", "opensearch"])


@each_engine
def test_a_server_without_lifecycles_gets_the_templates(engine: Engine) -> None:
    cluster = FakeCluster(engine, refusal=NO_HANDLER)
    policy, template, *_ = install(cluster)
    assert policy.done is False
    assert template.done is True
    assert "has no I" in policy.what
    assert templates_and_policies(cluster) == {"/_index_template/task-reports"}


@each_engine
@each_case("status", [401, 403, 429, 503])
def test_a_server_that_does_not_say_whether_it_has_lifecycles_is_quoted(
    engine: Engine, status: int
) -> None:
    refusal = ServerResponse(status=status, body={"error": {"reason": "not now"}})
    cluster = FakeCluster(engine, refusal=refusal)
    policy, *_ = install(cluster)
    assert not policy.done
    assert policy.what == f"lifecycle policy task-profiler (HTTP {status}: not now)"
    assert templates_and_policies(cluster) == {"/_index_template/task-reports"}


TEMPLATE = "/_index_template/task-reports"


def lifecycle_of(cluster: FakeCluster) -> object:
    return cluster.put[TEMPLATE]["template"]["settings"]["index"].get("lifecycle")


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_a_template_keeps_its_lifecycle_while_the_policy_cannot_be_read(status: int) -> None:
    """Also another policy, of a person. A later installation attaches the policy again."""
    cluster = FakeCluster("elasticsearch")
    install(cluster)
    theirs = {"name": "kept-for-years", "rollover_alias": "runs"}
    cluster.put[TEMPLATE]["template"]["settings"]["index"]["lifecycle"] = theirs
    cluster.refusal = ServerResponse(status=status, body={"error": {"reason": "not now"}})
    policy, *_ = install(cluster)
    assert policy == TemplateStep(
        what=f"lifecycle policy task-profiler (HTTP {status}: not now)", done=False
    )
    assert lifecycle_of(cluster) == theirs
    cluster.refusal = None
    install(cluster)
    assert lifecycle_of(cluster) == {"name": "task-profiler"}


def test_a_template_that_cannot_be_read_is_not_replaced_while_the_policy_cannot() -> None:
    cluster = FakeCluster("elasticsearch")
    install(cluster)
    before = cluster.put[TEMPLATE]
    cluster.refusal, cluster.hides_templates = FORBIDDEN, True
    with pytest.raises(TaskProfilerError, match=r"cannot be read \(HTTP 403: not yours\)"):
        install(cluster)
    assert cluster.put[TEMPLATE] is before


@each_engine
@pytest.mark.parametrize("exists", [True, False])
def test_without_the_right_to_write_the_policy_the_templates_are_installed(
    engine: Engine,
    exists: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """An existing policy is attached."""
    cluster = FakeCluster(engine)
    if exists:
        install(cluster)
        del cluster.put[TEMPLATE]
    cluster.refusal, cluster.allowed = FORBIDDEN, {"GET"}
    policy, template, *_ = install(cluster)
    assert policy.what == "lifecycle policy task-profiler (HTTP 403: not yours)"
    assert not policy.done
    assert template.done
    is_attached = exists and engine == "elasticsearch"
    assert lifecycle_of(cluster) == ({"name": "task-profiler"} if is_attached else None)


THEIRS_FIRST = (
    "index template task-reports in new indices: theirs with priority {} counts alone, and lacks "
    "its mappings; lower the priority, or copy the mappings"
)


@each_case(
    ("pattern", "priority", "named"),
    [
        ("*", 500, 4),
        ("task-*", 201, 4),
        ("task-reports-*", 900, 1),
        ("task-*", 199, 0),
        ("logs-*-*", 500, 0),
        (".kibana*", 9_999, 0),
    ],
)
@each_case("has_mappings", [False, True])
def test_a_template_of_others_that_new_indices_get_instead_is_named(
    pattern: str,
    priority: int,
    named: int,
    *,
    has_mappings: bool,
) -> None:
    """A copy with another lifecycle, as the documentation proposes, is none."""
    cluster = FakeCluster("elasticsearch")
    files = setup_files()
    if has_mappings:
        cluster.simulated = files.templates
    cluster.templates = {
        "theirs": {"index_patterns": [pattern], "priority": priority},
        "task-reports": {"index_patterns": ["task-reports-*"], "priority": 200},
        "broken": {"index_patterns": None, "priority": "high"},
    }
    steps = install_templates(cluster, files, prefix="task", now=NOW, dry_run=False)
    said = [step.what for step in steps if "in new indices" in step.what and not step.done]
    assert len(said) == (0 if has_mappings else named)
    assert (THEIRS_FIRST.format(priority) in said) is bool(said)


@each_engine
def test_the_policy_of_another_prefix_is_not_replaced(engine: Engine) -> None:
    """An ISM policy contains its patterns.

    An ILM policy runs with the rights of the user who wrote it last.
    """
    cluster = FakeCluster(engine)
    install(cluster)
    before = dict(cluster.put)
    steps = install(cluster, prefix="team-a")
    assert steps[0].what == "lifecycle policy team-a-profiler"
    assert {path: cluster.put[path] for path in before} == before
    (policy,) = [path for path in cluster.put if path.endswith("/team-a-profiler")]
    assert policy in ("/_ilm/policy/team-a-profiler", "/_plugins/_ism/policies/team-a-profiler")
    settings = cluster.put["/_index_template/team-a-reports"]["template"]["settings"]["index"]
    assert settings == (
        {"lifecycle": {"name": "team-a-profiler"}} if engine == "elasticsearch" else {}
    )


@pytest.mark.parametrize(
    ("reason", "steps"),
    [
        (
            "bad mapping",
            [
                (
                    "index task-reports-2026.11 (HTTP 400: bad mapping): its panels are errors "
                    "until it exists"
                )
            ],
        ),
        ("resource_already_exists_exception", []),
    ],
)
def test_an_index_that_the_server_does_not_create_is_no_failure(
    reason: str, steps: list[str]
) -> None:
    cluster = FakeCluster("elasticsearch", refuses="/task-reports-2026.11", reason=reason)
    assert [step.what for step in install(cluster) if not step.done] == steps
    assert "/task-checkpoints-2026.11" in cluster.put


def test_a_month_gets_no_empty_index_beside_those_of_its_days() -> None:
    """It would hide that they are gone. Of a kind without an index, its panels are errors."""
    cluster = FakeCluster("elasticsearch")
    cluster.indices = ("task-reports-2026.11.03", "team-notices-2026.11")
    cluster.aliases = ("task-checkpoints-all",)
    install(cluster)
    assert [path for path in cluster.put if not path.startswith("/_")] == ["/task-notices-2026.11"]


@pytest.mark.parametrize(("status", "body"), [(401, None), (200, "x"), (200, {"version": {}})])
def test_something_else_at_the_address_is_said(status: int, body: object) -> None:
    other = Mock(request=lambda *_: ServerResponse(status=status, body=body))
    with pytest.raises(TaskProfilerError, match="no Elasticsearch or OpenSearch"):
        detect_product(other)


class ZonedCluster(FakeCluster):
    """OpenSearch with balanced zones: an index has a multiple of them as copies, or is refused."""

    def __init__(self, zones: int, default_replicas: int) -> None:
        super().__init__("opensearch", refusal=NO_HANDLER)
        self._zones, self._default_replicas = zones, default_replicas

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        is_index = method == "PUT" and path.startswith("/task-reports-")
        if is_index or (path.startswith("/_index_template") and isinstance(body, dict)):
            # Of a new index, the default counts, whatever the template says.
            cap = None
            if not is_index and isinstance(body, dict):
                cap = body["template"]["settings"]["index"].get("auto_expand_replicas")
            replicas, what = self._default_replicas, "total copies needs"
            if cap is not None:
                replicas, what = int(cap.partition("-")[2]), "max cap on auto expand"
            if (replicas + 1) % self._zones:
                reason = (
                    f"Validation Failed: 1: expected {what} to be a multiple of total awareness "
                    f"attributes [{self._zones}];"
                )
                return ServerResponse(status=400, body={"error": {"reason": reason}})
        return super().request(method, path, body)


def installed_with(zones: int, default_replicas: int) -> tuple[list[str], list[str | None]]:
    """The installed templates in words, and how their replicas expand."""
    cluster, files = ZonedCluster(zones, default_replicas), setup_files()
    steps = install_templates(cluster, files, prefix="task", now=NOW, dry_run=False)
    words = [step.what for step in steps if step.what.startswith("index template")]
    caps = [
        body["template"]["settings"]["index"].get("auto_expand_replicas")
        for path, body in cluster.put.items()
        if path.startswith("/_index_template")
    ]
    return words, caps


@pytest.mark.parametrize(("zones", "default_replicas"), [(1, 1), (2, 1), (1, 0)])
def test_templates_stay_as_they_are_where_zones_allow_it(zones: int, default_replicas: int) -> None:
    words, caps = installed_with(zones, default_replicas)
    assert caps == ["0-1"] * 4
    assert "index template task-reports" in words


def test_balanced_zones_get_the_templates_without_replicas_of_their_own() -> None:
    words, caps = installed_with(3, 2)
    assert caps == [None] * 4
    assert words[0] == (
        "index template task-checkpoints without auto_expand_replicas: the cluster's default "
        "replicas fit its 3 zones"
    )


@pytest.mark.parametrize(("zones", "default_replicas"), [(3, 1), (2, 0), (2, 2)])
def test_zones_that_the_default_replicas_do_not_fit_are_an_error_with_a_remedy(
    zones: int, default_replicas: int
) -> None:
    """With two zones, the templates are taken, and no index of theirs is."""
    remedy = rf"set cluster\.default_number_of_replicas to {zones - 1}\."
    with pytest.raises(RejectedError, match=remedy):
        installed_with(zones, default_replicas)

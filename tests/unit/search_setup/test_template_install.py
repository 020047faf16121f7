from datetime import UTC, datetime
from typing import Any

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.search_setup.template_install import (
    Engine,
    Method,
    ServerResponse,
    SetupFiles,
    SetupStep,
    detect_engine,
    install_templates,
    with_index_prefix,
)

FILES = SetupFiles(
    templates={"task-reports": {"index_patterns": ["task-reports-*"], "template": {"settings": {"index": {}}}}},
    policies={
        "elasticsearch": {"policy": {"phases": {}}},
        "opensearch": {"policy": {"ism_template": [{"index_patterns": ["task-reports-*"]}]}},
    },
)


NOW = datetime(2026, 11, 22, tzinfo=UTC)
INDICES = ["task-reports-2026.11", "task-checkpoints-2026.11", "task-notices-2026.11"]
_VERSIONS = {
    "elasticsearch": {"number": "8.7.1"},
    "opensearch": {"number": "2.19.1", "distribution": "opensearch"},
}


class FakeCluster:
    """A cluster of one engine, with or without lifecycle policies. Stores the bodies of PUT requests."""

    def __init__(
        self, engine: Engine, *, lifecycles: bool = True, refuses: str = "", reason: str = "bad mapping"
    ) -> None:
        self._engine = engine
        self._lifecycles = lifecycles
        self._refuses = refuses
        self._reason = reason
        self.put: dict[str, Any] = {}

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        bare = path.partition("?")[0]
        if path == "/":
            return ServerResponse(status=200, body={"version": _VERSIONS[self._engine]})
        if ("_ilm" in path or "_ism" in path) and not self._lifecycles:
            return ServerResponse(status=400, body={"error": f"no handler found for uri [{path}]"})
        return self._present(bare) if method == "GET" else self._take(bare, path, body)

    def _present(self, bare: str) -> ServerResponse:
        if bare in self.put:
            return ServerResponse(status=200, body={"_seq_no": 3, "_primary_term": 1})
        return ServerResponse(status=404, body={"error": {"reason": "Lifecycle policy not found: task-profiler"}})

    def _take(self, bare: str, path: str, body: object) -> ServerResponse:
        if self._refuses and self._refuses in path:
            return ServerResponse(status=400, body={"error": {"reason": self._reason}})
        if "_ism" in path and bare in self.put and "if_seq_no=3&if_primary_term=1" not in path:
            return ServerResponse(status=409, body={"error": {"reason": "version conflict"}})
        self.put[bare] = body
        return ServerResponse(status=200, body={"acknowledged": True})


def templates_and_policies(cluster: FakeCluster) -> set[str]:
    return {path for path in cluster.put if path.startswith("/_")}


def install(cluster: FakeCluster, *, prefix: str = "task", dry_run: bool = False) -> list[SetupStep]:
    return list(install_templates(cluster, FILES, prefix=prefix, now=NOW, dry_run=dry_run))


def test_elasticsearch_with_lifecycles_gets_them_through_the_template() -> None:
    cluster = FakeCluster("elasticsearch")
    assert [step.done for step in install(cluster)] == [True] * 5
    assert templates_and_policies(cluster) == {"/_ilm/policy/task-profiler", "/_index_template/task-reports"}
    template = cluster.put["/_index_template/task-reports"]
    assert template["template"]["settings"]["index"]["lifecycle"] == {"name": "task-profiler"}
    assert "lifecycle" not in FILES.templates["task-reports"]["template"]["settings"]["index"]


def test_opensearch_takes_the_policy_again_and_again() -> None:
    cluster = FakeCluster("opensearch")
    for _ in range(2):
        assert all(step.done for step in install(cluster))
    assert "lifecycle" not in cluster.put["/_index_template/task-reports"]["template"]["settings"]["index"]


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_a_server_without_lifecycles_gets_the_templates(engine: Engine) -> None:
    cluster = FakeCluster(engine, lifecycles=False)
    policy, template, *_ = install(cluster)
    assert (policy.done, template.done) == (False, True)
    assert "has no I" in policy.what
    assert templates_and_policies(cluster) == {"/_index_template/task-reports"}


def test_a_prefix_renames_templates_and_patterns() -> None:
    cluster = FakeCluster("opensearch")
    install(cluster, prefix="team-a")
    assert cluster.put["/_index_template/team-a-reports"]["index_patterns"] == ["team-a-reports-*"]
    policy = cluster.put["/_plugins/_ism/policies/team-a-profiler"]
    assert policy["policy"]["ism_template"][0]["index_patterns"] == ["team-a-reports-*"]


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_the_policy_of_another_prefix_is_not_replaced(engine: Engine) -> None:
    """An ISM policy contains its patterns. An ILM policy runs with the rights of the user who wrote it last."""
    cluster = FakeCluster(engine)
    install(cluster)
    before = dict(cluster.put)
    steps = install(cluster, prefix="team-a")
    assert steps[0].what == "lifecycle policy team-a-profiler"
    assert {path: cluster.put[path] for path in before} == before
    (policy,) = [path for path in cluster.put if path.endswith("/team-a-profiler")]
    assert policy in ("/_ilm/policy/team-a-profiler", "/_plugins/_ism/policies/team-a-profiler")
    settings = cluster.put["/_index_template/team-a-reports"]["template"]["settings"]["index"]
    assert settings == ({"lifecycle": {"name": "team-a-profiler"}} if engine == "elasticsearch" else {})


def test_a_dry_run_puts_nothing_and_says_the_same() -> None:
    cluster = FakeCluster("elasticsearch")
    assert install(cluster, dry_run=True) == install(FakeCluster("elasticsearch"))
    assert cluster.put == {}


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_the_first_indices_are_created_after_their_templates_and_once(engine: Engine) -> None:
    cluster = FakeCluster(engine)
    steps = install(cluster)
    assert steps[-3:] == [SetupStep(what=f"index {name}", done=True) for name in INDICES]
    assert list(cluster.put)[-4:] == ["/_index_template/task-reports", *(f"/{name}" for name in INDICES)]
    assert not [step for step in install(cluster) if step.what.startswith("index task-")]


@pytest.mark.parametrize(
    ("reason", "steps"),
    [
        ("bad mapping", ["index task-reports-2026.11 (HTTP 400: bad mapping): its panels are errors until it exists"]),
        ("resource_already_exists_exception", []),
    ],
)
def test_an_index_that_the_server_does_not_create_is_no_failure(reason: str, steps: list[str]) -> None:
    cluster = FakeCluster("elasticsearch", refuses="/task-reports-2026.11", reason=reason)
    assert [step.what for step in install(cluster) if not step.done] == steps
    assert "/task-checkpoints-2026.11" in cluster.put


def test_a_refusal_is_a_sentence() -> None:
    with pytest.raises(TaskProfilerError, match=r"index template task-reports was rejected .HTTP 400: bad mapping"):
        install(FakeCluster("elasticsearch", refuses="_index_template"))


@pytest.mark.parametrize(
    "answer",
    [
        ServerResponse(status=401),
        ServerResponse(status=200, body="x"),
        ServerResponse(status=200, body={"version": {}}),
    ],
)
def test_something_else_at_the_address_is_said(answer: ServerResponse) -> None:
    class Other:
        def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
            return answer

    with pytest.raises(TaskProfilerError, match="no Elasticsearch or OpenSearch"):
        detect_engine(Other())


def test_only_patterns_are_renamed() -> None:
    assert with_index_prefix({"a": ["task-logs-*", "task-profiler", 5], "description": "task-x"}, "p") == {
        "a": ["p-logs-*", "task-profiler", 5],
        "description": "task-x",
    }


def test_the_first_indices_can_be_of_a_day() -> None:
    cluster = FakeCluster("opensearch")
    list(install_templates(cluster, FILES, prefix="task", now=NOW, dry_run=False, period="day"))
    assert {path.removeprefix("/") for path in cluster.put} >= {f"{name}.22" for name in INDICES}

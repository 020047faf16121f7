"""The lifecycle of the indices: a merge never keeps an index closed for writing, and indices that
an older policy has closed are opened.
"""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from profiler.search_setup.cluster_requests import (
    Method,
    RejectedError,
    ServerResponse,
    TemplateStep,
)
from profiler.search_setup.template_install import install_templates, setup_files
from tests.cases import each_case
from tests.played_ism import ManagedIndex, PlayedIsm, policy_before

NOW = datetime(2026, 11, 22, tzinfo=UTC)
OLD = "task-reports-2026.10"
ILM = "index.lifecycle.name"
BLOCK = "index.blocks.write"


class Cluster:
    """The settings of indices, by their flat names."""

    def __init__(self, version: str, distribution: str = "") -> None:
        self.version = {"number": version, "distribution": distribution}
        self.settings: dict[str, dict[str, str]] = {}
        self.policy: Any = None
        self.refuses_settings = False
        self.hides_settings = False

    def is_blocked(self, name: str) -> bool:
        return self.settings[name].get(BLOCK) == "true"

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        target = path.partition("?")[0]
        names, _, asked = target.removeprefix("/").partition("/")
        if path == "/":
            return ServerResponse(status=200, body={"version": self.version})
        if target.startswith("/_ilm"):
            self.policy = body or self.policy
            found = {"acknowledged": True} if body else {"error": {"reason": "policy not found"}}
            return ServerResponse(status=200 if body else 404, body=found)
        if self.hides_settings and asked.startswith("_settings") and method == "GET":
            return ServerResponse(status=403, body={"error": {"reason": "no permissions"}})
        if asked.startswith("_settings") and method == "GET":
            wanted = asked.removeprefix("_settings/").split(",")
            told: dict[str, object] = {}
            for name, own in self.settings.items():
                known = {one: value for one, value in own.items() if one in wanted}
                if "index.uuid" in wanted:
                    known["index.uuid"] = name
                of_patterns = [glob.removesuffix("*") for glob in names.split(",")]
                if known and name.startswith(tuple(of_patterns)):
                    told[name] = {"settings": known}
            return ServerResponse(status=200, body=told)
        if asked == "_settings":
            return self._change(names, body)
        return ServerResponse(status=200, body={})

    def _change(self, names: str, body: object) -> ServerResponse:
        assert isinstance(body, dict)
        if self.refuses_settings:
            return ServerResponse(status=403, body={"error": {"reason": "no permissions"}})
        for name in names.split(","):
            for setting, value in body.items():
                self.settings[name].pop(setting, None)
                if value is not None:
                    self.settings[name][setting] = json.dumps(value)
        return ServerResponse(status=200, body={"acknowledged": True})


def ism(cluster: Cluster) -> PlayedIsm:
    return PlayedIsm(cluster, cluster.settings.__delitem__)


def opensearch(**ages_days: float) -> tuple[Cluster, PlayedIsm]:
    """A cluster with the policy, and indices of these ages."""
    cluster = Cluster("2.19.1", "opensearch")
    played = ism(cluster)
    install(played)
    for name, age_days in ages_days.items():
        add_index(cluster, played, f"task-reports-{name}", age_days)
    return cluster, played


def add_index(cluster: Cluster, played: PlayedIsm, name: str, age_days: float) -> None:
    cluster.settings[name] = {}
    played.indices[name] = ManagedIndex("task-profiler", age_days)


def install(server: Any, *, dry_run: bool = False) -> list[TemplateStep]:
    return list(install_templates(server, setup_files(), prefix="task", now=NOW, dry_run=dry_run))


def test_an_index_is_closed_only_while_it_is_merged() -> None:
    cluster, played = opensearch(young=99, old=101)
    blocked: list[bool] = []
    for _ in range(12):
        played.run()
        assert not cluster.is_blocked("task-reports-young")
        blocked.append(cluster.is_blocked("task-reports-old"))
    assert blocked.count(True) == 4  # from the block over the merge to the next state
    assert blocked[-1] is False
    assert played.indices["task-reports-old"].state == "writable"
    played.indices["task-reports-old"].age_days = 400
    played.run(2)
    assert "task-reports-old" not in cluster.settings


def test_two_people_at_once_write_one_policy() -> None:
    """The second one imports after the first one's reading of the policy. The control is a policy
    of another version, which somebody writes meanwhile: it is not replaced unread.
    """
    for before in (None, policy_before()):
        for other in (None, policy_before()):
            cluster = Cluster("2.19.1", "opensearch")
            played = ism(cluster)
            if before is not None:
                played.policies["task-profiler"] = (0, before)
                played._next_seq_no = 5
            meanwhile = Meanwhile(played, other)
            if other is None:
                assert all(step.done for step in install(meanwhile))
                assert played.writes == ["policy task-profiler"]
            else:
                with pytest.raises(RejectedError, match="409: version conflict"):
                    install(meanwhile)
                assert played.policies["task-profiler"][1] is other


class Meanwhile:
    """Somebody else imports, or writes this policy, after the first reading of it."""

    def __init__(self, played: PlayedIsm, policy: dict[str, Any] | None) -> None:
        self._played = played
        self._policy = policy
        self._has_come = False

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        answer = self._played.request(method, path, body)
        if "/policies/" in path and not self._has_come:
            self._has_come = True
            if self._policy is None:
                install(self._played)
            else:
                self._played.policies["task-profiler"] = (7, self._policy)
        return answer


def closed_by_the_policy_before() -> tuple[Cluster, PlayedIsm]:
    cluster = Cluster("2.19.1", "opensearch")
    played = ism(cluster)
    played.request("PUT", "/_plugins/_ism/policies/task-profiler", {"policy": policy_before()})
    add_index(cluster, played, OLD, 52)
    played.run(10)
    assert cluster.is_blocked(OLD)
    return cluster, played


def test_an_index_that_the_policy_before_has_closed_is_opened() -> None:
    cluster, played = closed_by_the_policy_before()
    dry = [step.what for step in install(played, dry_run=True)]
    assert cluster.is_blocked(OLD)
    steps = [step.what for step in install(played)]
    assert "lifecycle policy task-profiler in 1 existing index" in steps
    assert f"writing to {OLD}, which ISM had blocked" in steps
    assert set(dry) >= {f"writing to {OLD}, which ISM had blocked"}
    assert not cluster.is_blocked(OLD)
    played.run(10)
    assert not cluster.is_blocked(OLD)
    assert played.indices[OLD].state == "writable"


def test_an_index_whose_merge_has_failed_is_opened_and_named() -> None:
    """The plugin ends its work, after twelve hours or if its node ends in the middle, and leaves
    the block.
    """
    cluster, played = opensearch(old=101)
    name = "task-reports-old"
    played.run(4)
    assert cluster.is_blocked(name)
    played.indices[name].is_failed = True
    played.run(10)
    assert cluster.is_blocked(name)
    steps = {step.what: step.done for step in install(played)}
    assert steps[f"writing to {name}, which ISM had blocked"]
    assert not cluster.is_blocked(name)
    sentence = (
        f"lifecycle policy task-profiler in {name}: it has failed (Force merge timed out); "
        "POST /_plugins/_ism/retry/NAME goes on with it"
    )
    assert steps[sentence] is False


def test_a_change_of_the_policy_begins_an_action_anew_and_waits_for_a_state_to_be_entered() -> None:
    """As the plugin does: what the player does is the test's own claim."""
    cluster = Cluster("2.19.1", "opensearch")
    played = ism(cluster)
    played.request("PUT", "/_plugins/_ism/policies/task-profiler", {"policy": policy_before()})
    add_index(cluster, played, OLD, 52)
    index = played.indices[OLD]
    played.run(2)
    assert (index.state, index.next_state) == ("current", "past")
    played.run(2)
    assert (index.state, index.action, index.step) == ("past", 0, 2)
    install(played)
    assert index.is_safe
    assert not cluster.is_blocked(OLD)
    played.run()
    assert (index.action, index.step) == (0, 0)
    played.run()
    assert cluster.is_blocked(OLD)


@each_case("passes", range(2, 10))
def test_an_index_in_the_middle_of_its_merge_is_opened_by_the_new_policy(passes: int) -> None:
    cluster = Cluster("2.19.1", "opensearch")
    played = ism(cluster)
    played.request("PUT", "/_plugins/_ism/policies/task-profiler", {"policy": policy_before()})
    add_index(cluster, played, OLD, 52)
    played.run(passes)
    install(played)
    played.run(15)
    assert not cluster.is_blocked(OLD)


def test_what_is_not_ours_stays() -> None:
    cluster, played = closed_by_the_policy_before()
    frozen = "task-reports-2026.11"
    add_index(cluster, played, frozen, 10)
    played.run()
    cluster.settings[frozen][BLOCK] = "true"  # by a person
    add_index(cluster, played, "task-reports-theirs", 52)
    played.indices["task-reports-theirs"].policy_id = "theirs"
    played.policies["theirs"] = (2, policy_before())
    played.run(10)
    install(played)
    assert cluster.is_blocked(frozen)
    assert cluster.is_blocked("task-reports-theirs")
    assert played.indices["task-reports-theirs"].changed_to is None


def test_a_repeated_installation_changes_nothing() -> None:
    _, played = opensearch(old=101)
    played.run(12)
    played.writes.clear()
    steps = install(played)
    assert played.writes == []
    assert not [step.what for step in steps if "existing" in step.what or "writing" in step.what]


def test_a_refusal_is_said() -> None:
    cluster, played = closed_by_the_policy_before()
    cluster.refuses_settings = True
    steps = [step.what for step in install(played) if not step.done]
    assert steps == [f"writing to {OLD}, which ISM had blocked (HTTP 403: no permissions)"]
    cluster.hides_settings = True
    steps = [step.what for step in install(played) if not step.done]
    assert steps == [f"the write blocks of {OLD} (HTTP 403: no permissions)"]


def test_elasticsearch_7_is_opened_where_our_policy_has_closed_it() -> None:
    cluster = Cluster("7.17.29")
    cluster.settings = {
        OLD: {BLOCK: "true", ILM: "task-profiler"},
        "task-logs-2026.10": {BLOCK: "true", ILM: "theirs"},
        "task-reports-2026.11": {ILM: "task-profiler"},
        "task-checkpoints-2026.10": {BLOCK: "true"},
    }
    steps = [step.what for step in install(cluster) if "blocked" in step.what]
    assert steps == [f"writing to {OLD}, which ILM had blocked"]
    assert [name for name in cluster.settings if cluster.is_blocked(name)] == [
        "task-logs-2026.10",
        "task-checkpoints-2026.10",
    ]


def test_elasticsearch_8_never_closes_an_index_so_that_a_block_is_a_persons() -> None:
    cluster = Cluster("8.7.1")
    cluster.settings = {OLD: {BLOCK: "true", ILM: "task-profiler"}}
    install(cluster)
    assert cluster.is_blocked(OLD)


def test_no_phase_of_elasticsearch_merges_which_would_close_the_index_in_version_7() -> None:
    phases = setup_files().policies["elasticsearch"]["policy"]["phases"]
    assert not [name for name, phase in phases.items() if "forcemerge" in phase["actions"]]


def test_an_index_without_a_policy_is_named_and_gets_none_which_would_delete_it() -> None:
    """Such as one of a time without the right to the policy, or one that a person keeps."""
    cluster = Cluster("8.7.1")
    names = [f"task-reports-2026.{month:02}" for month in range(1, 4)]
    cluster.settings = {name: {} for name in names} | {OLD: {ILM: "theirs"}}
    (said,) = [step for step in install(cluster) if not step.done]
    assert said.what == (
        f"lifecycle policy task-profiler in {', '.join(names)}: they have none and are kept; "
        'PUT /NAME/_settings {"index.lifecycle.name": "task-profiler"} adds it'
    )
    assert cluster.settings[names[0]] == {}
    _, played = opensearch(young=1)
    played.unmanaged = ["task-reports-2026.01"]
    (said,) = [step for step in install(played) if not step.done]
    assert said.what == (
        "lifecycle policy task-profiler in task-reports-2026.01: it has none and is kept; "
        'POST /_plugins/_ism/add/NAME {"policy_id": "task-profiler"} adds it'
    )


class NewCluster(PlayedIsm):
    """Without indices. As the plugin does, it gives a new index its policy later."""

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        name = path.removeprefix("/")
        if name.startswith("task-"):
            if method == "PUT":
                self.unmanaged.append(name)
            return ServerResponse(status=200 if name in self.unmanaged else 404)
        return super().request(method, path, body)


def test_an_index_of_this_installation_is_not_named_as_one_without_a_policy() -> None:
    cluster = Cluster("2.19.1", "opensearch")
    played = NewCluster(cluster, cluster.settings.__delitem__)
    steps = install(played)
    assert played.unmanaged == [
        f"task-{kind}-2026.11" for kind in ("reports", "checkpoints", "notices")
    ]
    assert [step.what for step in steps if not step.done] == []


def test_which_indices_have_no_policy_is_said_to_be_unknown_where_nobody_may_see_it() -> None:
    cluster = Cluster("8.7.1")
    cluster.hides_settings = True
    (said,) = [step for step in install(cluster) if not step.done]
    assert said.what == (
        "lifecycle policy task-profiler in existing indices (HTTP 403: no permissions)"
    )

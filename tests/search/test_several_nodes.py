"""Clusters of several nodes: two of Elasticsearch, of which one is the elected master, and three of
OpenSearch in balanced zones, whose lifecycle policy is played.
"""

import json
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

import handler
from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
from profiler.cli.options import SourceOptions
from profiler.cli.setup.deployment_output import ForwarderCluster, deploy_forwarder
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.completeness import Completeness
from profiler.forwarder.invocation import DeliveryError
from profiler.runs.past_runs.run_source import RunFilter
from profiler.search_setup.cluster_requests import RejectedError
from profiler.search_setup.search_servers import ClusterServer
from profiler.search_setup.template_install import install_templates, setup_files
from tests.command_line import run_here
from tests.played_ism import ManagedIndex, PlayedIsm, policy_before
from tests.search.forwarding import Context, call, event, forwarding, report, search
from tests.setup_world import APPLY, SECRETS, VALUES, World, forwarder_zip
from tests.values import present
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.search


@pytest.fixture(params=["elected", "other"])
def node(
    request: pytest.FixtureRequest, pair: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SearchServer]:
    """The node that the forwarder asks."""
    asked = pair if request.param == "elected" else present(pair.peer)
    with forwarding(asked, monkeypatch):
        yield asked
    settings = {"cluster.max_shards_per_node": None, "search.default_search_timeout": None}
    call(pair, "PUT", "_cluster/settings", {"persistent": settings})


def forward(*lines: str) -> dict[str, Any]:
    return dict(handler.forward_logs(event(*lines), Context()))


def test_a_cluster_with_its_maximum_of_shards_keeps_the_reports_of_a_new_month(
    node: SearchServer,
) -> None:
    assert forward(report("0001"))["indexed"] == 1
    call(node, "PUT", "_cluster/settings", {"persistent": {"cluster.max_shards_per_node": 1}})
    new_month = report("0002", finishedAt="2026-04-02T10:00:00Z")
    with pytest.raises(DeliveryError, match=r"maximum .*shards open"):
        forward(report("0003"), new_month)
    assert search(node)["hits"]["total"]["value"] == 2
    call(node, "PUT", "_cluster/settings", {"persistent": {"cluster.max_shards_per_node": None}})
    assert forward(report("0003"), new_month) == {
        "indexed": 2,
        "skipped": 0,
        "failed": 0,
        "untrusted": 0,
    }


def put_template(node: SearchServer, settings: dict[str, Any], **mappings: Any) -> None:
    """A template of somebody else, before which the forwarder's gives way."""
    template = {"settings": {"index": settings}, "mappings": mappings}
    body = {"index_patterns": ["task-reports-2026.05"], "priority": 900, "template": template}
    call(node, "PUT", "_index_template/theirs", body)


# By what is wrong with the index.
@pytest.mark.diagonal
@pytest.mark.parametrize("fault", ["fields", "alias", "closed", "block", "shards"])
def test_an_index_that_takes_no_document_keeps_them_all(node: SearchServer, fault: str) -> None:
    name = "task-reports-2026.05"
    match fault:
        case "fields":
            put_template(node, {"mapping.total_fields.limit": 9}, dynamic=True)
        case "alias":
            for real in ("task-1", "task-2"):
                call(node, "PUT", real, {"aliases": {name: {}}})
        case "closed":
            call(node, "PUT", name)
            call(node, "POST", f"{name}/_close")
        case "block":
            call(node, "PUT", name, {"settings": {"index.blocks.write": True}})
        case "shards":
            put_template(node, {"number_of_shards": 1024})
    try:
        with pytest.raises(DeliveryError, match="did not accept some documents"):
            forward(report("0001"), report("0002", finishedAt="2026-05-02T10:00:00Z"))
        found = search(node, "task-reports-2026.03")["hits"]["hits"]
        assert [hit["_source"]["task"]["id"] for hit in found] == ["0001"]
    finally:
        requests.delete(f"{node.url}/_index_template/theirs", timeout=LIMIT_SECONDS)


def test_a_bad_document_among_good_ones_is_refused_alone(node: SearchServer) -> None:
    """An index with a mapping of somebody else, to which a part of the runs fits."""
    families = {"task": {"properties": {"family": {"type": "long"}}}}
    put_template(node, {}, properties=families)
    may = {"finishedAt": "2026-05-02T10:00:00Z"}
    try:
        counts = forward(report("0001", family="7", **may), report("0002", **may))
        alone = forward(report("0002", **may))
    finally:
        requests.delete(f"{node.url}/_index_template/theirs", timeout=LIMIT_SECONDS)
    assert counts == {"indexed": 1, "skipped": 0, "failed": 1, "untrusted": 0}
    assert alone == {"indexed": 0, "skipped": 0, "failed": 1, "untrusted": 0}


def test_a_search_that_the_cluster_cuts_off_is_no_evidence(
    pair: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forwarding(pair, monkeypatch):
        lines = [
            json.dumps({"index": {}}) + "\n" + json.dumps(cut_off_run(number)) + "\n"
            for number in range(10_000)
        ]
        answer = requests.post(
            f"{pair.url}/task-reports-2026.03/_bulk?refresh=true",
            data="".join(lines),
            headers={"content-type": "application/x-ndjson"},
            timeout=LIMIT_SECONDS,
        )
        assert answer.json()["errors"] is False
        assert completeness_of(pair).is_whole
        limit: dict[str, dict[str, str | None]] = {}
        limit["persistent"] = {"search.default_search_timeout": "1ms"}
        call(pair, "PUT", "_cluster/settings", limit)
        try:
            part = wait_until(lambda: cut_off(pair), "a search that is cut off")
            checked = run_here({}, "recommend", "--check", "--from", pair.url)
        finally:
            limit["persistent"]["search.default_search_timeout"] = None
            call(pair, "PUT", "_cluster/settings", limit)
    assert "ran out of time in a search (timed_out)" in part.sentences[0]
    assert checked.returncode != 0, checked.stderr


def completeness_of(server: SearchServer) -> Completeness:
    """Whether the last runs of each family are all that there are."""
    source = open_source(SourceOptions(sources=(server.url,)))
    deque(source.last_runs(RunFilter(), 50), maxlen=0)
    return source.completeness


def cut_off(server: SearchServer) -> Completeness | None:
    completeness = completeness_of(server)
    return None if completeness.is_whole else completeness


def cut_off_run(number: int) -> dict[str, Any]:
    started = f"2026-03-01T{number % 24:02}:{number % 60:02}:00Z"
    return {
        "@timestamp": started,
        "task": {
            "id": str(number),
            "family": f"nightly-{number % 40}",
            "status": "success",
            "complete": True,
            "confirmed": True,
        },
        "container": {"name": "batch"},
        "event": {"start": started, "dataset": "task.report"},
    }


def test_an_index_that_goes_while_it_is_read_is_said(
    pair: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forwarding(pair, monkeypatch):
        for month, action in (("01", "_close"), ("02", "DELETE")):
            texts = [
                report(f"{month}-{number:03}", finishedAt=f"2026-{month}-02T10:00:00Z")
                for number in range(150)
            ]
            newer = [
                report(f"n{month}-{number:03}", finishedAt="2026-03-02T10:00:00Z")
                for number in range(150)
            ]
            forward(*texts)
            forward(*newer)
            search(pair)
            source = open_source(SourceOptions(sources=(pair.url,)))
            runs = source.runs(RunFilter())
            next(runs)
            name = f"task-reports-2026.{month}"
            if action == "DELETE":
                call(pair, "DELETE", name)
            else:
                call(pair, "POST", f"{name}/_close")
            assert len(list(runs)) < 299
            assert not source.completeness.is_whole
            call(pair, "DELETE", "task-reports-2026.03")


@pytest.fixture
def zoned(zones: SearchServer) -> Iterator[SearchServer]:
    zones.remove_ours()
    yield zones
    zones.remove_ours()
    set_default_replicas(zones, None)


def set_default_replicas(server: SearchServer, count: int | None) -> None:
    """As Amazon OpenSearch Service has set it for its zones."""
    call(
        server,
        "PUT",
        "_cluster/settings",
        {"persistent": {"cluster.default_number_of_replicas": count}},
    )


def wait_for_all_copies(server: SearchServer, index: str) -> int:
    """Wait until each copy of each shard of the index has its place; the number of copies."""
    wait = "wait_for_status=green&timeout=100s"
    return int(call(server, "GET", f"_cluster/health/{index}?{wait}")["active_shards"])


def kibana_import(server: SearchServer) -> Any:
    return run_here({}, "kibana", "import", "--elasticsearch", server.url)


def test_balanced_zones_get_templates_and_documents_with_a_copy_in_each_zone(
    zoned: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_URL", zoned.url)
    monkeypatch.setenv("SEARCH_ENGINE", zoned.engine)
    monkeypatch.setenv("TRUSTED_LOG_GROUPS", "/ecs/jobs")
    with pytest.raises(DeliveryError, match=r"set cluster\.default_number_of_replicas to 2\."):
        handler.forward_logs(event(report()), Context())
    refused = kibana_import(zoned)
    assert refused.returncode == 1
    assert "set cluster.default_number_of_replicas to 2." in refused.stderr
    set_default_replicas(zoned, 2)
    done = kibana_import(zoned)
    assert done.returncode == 0, done.stderr
    assert "index template task-reports without auto_expand_replicas" in done.stdout
    handler.forward_logs(event(report()), Context())
    assert wait_for_all_copies(zoned, "task-reports-2026.03") == 3


def test_a_stack_beside_balanced_zones_is_deployed_once_their_replicas_fit(
    zoned: SearchServer, tmp_path: Path
) -> None:
    """Until then nothing is left of it: neither a secret nor a change set."""
    world = World(None)
    settings = VALUES | {"ElasticsearchUrl": zoned.url}
    request = DeploymentRequest(
        name="tp", zip_file=forwarder_zip(tmp_path), secrets=SECRETS, settings=settings
    )
    cluster = ForwarderCluster(zoned.url, requests.Session())
    with pytest.raises(RejectedError, match=r"set cluster\.default_number_of_replicas to 2\."):
        deploy_forwarder(request, world.open, cluster, APPLY)
    assert world.state() == World(None).state()
    set_default_replicas(zoned, 2)
    assert deploy_forwarder(request, world.open, cluster, APPLY) == 0
    assert world.secrets.keys() == {"tp/slack"}
    templates = call(zoned, "GET", "_index_template")["index_templates"]
    assert "task-reports" in [one["name"] for one in templates]


@pytest.fixture
def played(zoned: SearchServer, monkeypatch: pytest.MonkeyPatch) -> PlayedIsm:
    """The plugin of the zones, whose indices the forwarder writes."""
    set_default_replicas(zoned, 2)
    for variable, value in (
        ("ELASTICSEARCH_URL", zoned.url),
        ("SEARCH_ENGINE", zoned.engine),
        ("TRUSTED_LOG_GROUPS", "/ecs/jobs"),
    ):
        monkeypatch.setenv(variable, value)
    return PlayedIsm(
        ClusterServer(zoned.url, requests.Session()), lambda index: call(zoned, "DELETE", index)
    )


def install(played: PlayedIsm) -> list[str]:
    """What is done by an import of the templates and the policy."""
    now = datetime.now(UTC)
    steps = install_templates(played, setup_files(), prefix="task", now=now, dry_run=False)
    return [step.what for step in steps if step.done]


def test_a_late_report_finds_an_open_index_in_every_state_of_its_life(
    zoned: SearchServer, played: PlayedIsm
) -> None:
    name = "task-reports-2026.03"
    assert "lifecycle policy task-profiler" in install(played)
    assert forward(report("0000"))["indexed"] == 1
    wait_for_all_copies(zoned, name)  # one that is made during a merge would keep its segments
    index = ManagedIndex("task-profiler", age_days=52)
    played.indices[name] = index
    played.run(4)
    assert forward(report("0052"))["indexed"] == 1  # a task of 52 days
    index.age_days = 101
    refusals = 0
    for number in range(12):
        played.run()
        try:
            forward(report(f"1{number:03}"))
        except DeliveryError as error:
            refusals += "index write" in str(error)
    assert index.state == "writable"
    assert refusals == 4  # from the beginning of the merge to the next state
    assert forward(report("0399"))["indexed"] == 1
    index.age_days = 400
    played.run(2)
    assert requests.get(f"{zoned.url}/{name}", timeout=LIMIT_SECONDS).status_code == 404


def test_an_import_opens_the_indices_that_the_policy_before_has_closed(
    zoned: SearchServer, played: PlayedIsm
) -> None:
    """Wherever that policy is with an index, and if it has given one up. What a person has closed
    stays closed.
    """
    policy = {"policy": policy_before()}
    assert played.request("PUT", "/_plugins/_ism/policies/task-profiler", policy).is_success
    assert kibana_import(zoned).returncode == 0  # the server itself has no plugin
    by_policy = [f"2026-0{month}" for month in range(1, 6)]
    for month in by_policy:
        assert forward(report(f"a{month}", finishedAt=f"{month}-02T10:00:00Z"))["indexed"] == 1
        name = f"task-reports-{month.replace('-', '.')}"
        wait_for_all_copies(zoned, name)
        played.run(2)
        played.indices[name] = ManagedIndex("task-profiler", age_days=52)
    played.indices["task-reports-2026.02"].is_failed = True
    by_person = "task-reports-2026.06"
    late = {"finishedAt": "2026-06-02T10:00:00Z"}
    assert forward(report("a2026-06", **late))["indexed"] == 1
    call(zoned, "PUT", f"{by_person}/_settings", {"index.blocks.write": True})
    played.indices[by_person] = ManagedIndex("task-profiler", age_days=12)
    played.run()
    told = call(zoned, "GET", "task-reports-*/_settings/index.blocks.write")
    closed = {name for name, of_index in told.items() if of_index["settings"]}
    assert closed == {*played.indices} - {"task-reports-2026.05"}  # which it has just taken
    steps = install(played)
    assert "lifecycle policy task-profiler in 6 existing indices" in steps
    played.run(12)
    for month in by_policy:
        assert forward(report(f"b{month}", finishedAt=f"{month}-02T10:00:00Z"))["indexed"] == 1
    with pytest.raises(DeliveryError, match="index write"):
        forward(report("b2026-06", **late))

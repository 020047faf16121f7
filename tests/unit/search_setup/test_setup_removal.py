"""What ``kibana remove`` finds and removes, with a cluster that has lifecycle policies."""

from datetime import UTC, datetime
from typing import Any

import pytest

from profiler.search_setup.setup_removal import Removal, cluster_removals, remove
from profiler.search_setup.template_install import Engine, Method, ServerResponse, install_templates, setup_files
from tests.unit.search_setup.test_template_install import FakeCluster

NOW = datetime(2026, 11, 22, tzinfo=UTC)
FOREIGN = "/task-reports-queue"
POLICIES = {"elasticsearch": "/_ilm/policy/task-profiler", "opensearch": "/_plugins/_ism/policies/task-profiler"}


class Cluster(FakeCluster):
    """A cluster with everything that was installed, and with an index of somebody else."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        list(install_templates(self, setup_files(), prefix="task", now=NOW, dry_run=False))
        self.put[FOREIGN] = {}
        self.documents = {"/task-reports-2026.10": "7", "/task-reports-2026.09": None}
        self.put |= {name: {} for name in self.documents}

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        if path.endswith("/_refresh"):
            return ServerResponse(status=200)
        if path.startswith("/_cat/indices/"):
            indices = [name for name in self.put if not name.startswith("/_")]
            rows = [{"index": name[1:], "docs.count": self.documents.get(name, "0")} for name in indices]
            return ServerResponse(status=200, body=rows)
        if method == "DELETE":
            return ServerResponse(status=404 if self.put.pop(path, None) is None else 200)
        if method == "GET" and path in self.put and "_index_template" in path:
            return ServerResponse(status=200, body={"index_templates": [{"index_template": self.put[path]}]})
        return super().request(method, path, body)


def plan(cluster: Any, *, with_data: bool = False) -> list[Removal]:
    return list(cluster_removals(cluster, setup_files().templates, prefix="task", with_data=with_data))


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_indices_with_documents_and_their_lifecycle_policy_stay(engine: Engine) -> None:
    cluster = Cluster(engine)
    removals = plan(cluster)
    assert [removal.what for removal in removals if removal.delete is None] == [
        "index task-reports-2026.09 (closed)",
        "index task-reports-2026.10 (7 documents)",
        "lifecycle policy task-profiler (it deletes the indices that stay when they are 400 days old)",
    ]
    for removal in removals:
        remove(removal)
    assert cluster.put.keys() == {FOREIGN, *cluster.documents, POLICIES[engine]}


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_all_that_was_installed_can_be_removed(engine: Engine) -> None:
    cluster = Cluster(engine)
    removals = plan(cluster, with_data=True)
    for removal in [*removals, *removals]:  # what is gone already is no error
        remove(removal)
    assert cluster.put.keys() == {FOREIGN}
    assert plan(cluster) == []

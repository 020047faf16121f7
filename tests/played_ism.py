"""OpenSearch's index state management, played: the plugin's API and the calls of its steps.

The plugin is in no package registry. Its steps, their order and what a changed policy does follow
its source, https://github.com/opensearch-project/index-management (2.19): ``AttemptSetReadOnlyStep``
and ``SetReadWriteStep`` set ``index.blocks.write``, one step a pass; ``isSafeToChange``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.search_setup.cluster_requests import Method, SearchServer, ServerResponse

POLICY_SETTING = "index.plugins.index_state_management.policy_id"
_BLOCK = "index.blocks.write"
_NOT_FOUND = {"error": {"reason": "Policy not found"}}


@dataclass
class ManagedIndex:
    """An index with its own copy of a policy, and where it is in it. ``age_days`` is played."""

    policy_id: str
    age_days: float = 0
    seq_no: int | None = None
    states: list[dict[str, Any]] = field(default_factory=list)
    state: str | None = None
    action: int = 0
    step: int = 0
    changed_to: str | None = None

    @property
    def current(self) -> dict[str, Any]:
        return next(state for state in self.states if state["name"] == self.state)

    @property
    def is_waiting(self) -> bool:
        """Whether all actions of the state are done."""
        return self.action >= len(self.current["actions"])


class PlayedIsm:
    """A search cluster with the plugin."""

    def __init__(self, server: SearchServer, delete: Callable[[str], None]) -> None:
        self._server = server
        self._delete = delete
        self.policies: dict[str, tuple[int, dict[str, Any]]] = {}
        self.indices: dict[str, ManagedIndex] = {}
        self.unmanaged: list[str] = []  # indices without a policy
        self.writes: list[str] = []
        self._next_seq_no = 0

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        bare, _, query = path.partition("?")
        match bare.removeprefix("/_plugins/_ism/").split("/"):
            case ["policies", name] if bare.startswith("/_plugins/"):
                return self._policy(method, name, query, body)
            case ["explain", patterns]:
                return ServerResponse(status=200, body=self._explained(patterns.split(",")))
            case ["change_policy", names]:
                assert isinstance(body, dict)
                self.writes.append(path)
                for name in names.split(","):
                    self.indices[name].changed_to = body["policy_id"]
                changed = {"updated_indices": names.count(",") + 1, "failed_indices": []}
                return ServerResponse(status=200, body={**changed, "failures": False})
        return self._server.request(method, path, body)

    def _policy(self, method: Method, name: str, query: str, body: object) -> ServerResponse:
        known = self.policies.get(name)
        if method == "GET":
            if known is None:
                return ServerResponse(status=404, body=_NOT_FOUND)
            told = {**known[1], "policy_id": name, "schema_version": 21, "last_updated_time": 1}
            version = {"_seq_no": known[0], "_primary_term": 1}
            return ServerResponse(status=200, body={"_id": name, **version, "policy": told})
        assert isinstance(body, dict)
        if known is not None and query != f"if_seq_no={known[0]}&if_primary_term=1":
            return ServerResponse(status=409, body={"error": {"reason": "version conflict"}})
        seq_no = self._next_seq_no
        self._next_seq_no += 5
        self.writes.append(f"policy {name}")
        self.policies[name] = (seq_no, body["policy"])
        return ServerResponse(status=200, body={"_id": name, "_seq_no": seq_no, "_primary_term": 1})

    def _explained(self, patterns: list[str]) -> Mapping[str, object]:
        known: dict[str, object] = {
            name: {POLICY_SETTING: None, "enabled": None} for name in self.unmanaged
        }
        for name, index in self.indices.items():
            if any(name.startswith(pattern.removesuffix("*")) for pattern in patterns):
                known[name] = {POLICY_SETTING: index.policy_id, "enabled": True}
                if index.seq_no is not None:
                    known[name] = {
                        POLICY_SETTING: index.policy_id,
                        "policy_id": index.policy_id,
                        "policy_seq_no": index.seq_no,
                        "state": {"name": index.state},
                    }
        return {**known, "total_managed_indices": len(known) - len(self.unmanaged)}

    def run(self, passes: int = 1) -> None:
        """Let the plugin's job look at each index so many times."""
        for _ in range(passes):
            for name, index in list(self.indices.items()):
                self._run_one(name, index)

    def _run_one(self, name: str, index: ManagedIndex) -> None:
        if index.seq_no is None:
            self._take_policy(index)
            index.state = self.policies[index.policy_id][1]["default_state"]
        elif index.changed_to is not None and (index.is_waiting or self._is_safe(index)):
            index.changed_to = None
            self._take_policy(index)
        elif index.is_waiting:
            self._transit(index)
        else:
            (kind,) = index.current["actions"][index.action]
            steps = [*self._steps(kind, name)]
            steps[index.step]()
            index.step += 1
            if index.step == len(steps):
                index.action, index.step = index.action + 1, 0

    def _take_policy(self, index: ManagedIndex) -> None:
        index.seq_no, policy = self.policies[index.policy_id]
        index.states = policy["states"]

    def _is_safe(self, index: ManagedIndex) -> bool:
        """Whether the state has actions of the same kinds in the new policy."""
        new = self.policies[index.policy_id][1]["states"]
        after = next((state for state in new if state["name"] == index.state), None)
        return after is not None and [*map(set, after["actions"])] == [
            *map(set, index.current["actions"])
        ]

    def _transit(self, index: ManagedIndex) -> None:
        for transition in index.current["transitions"]:
            age = transition.get("conditions", {}).get("min_index_age", "0d")
            days = re.fullmatch(r"(\d+)d", age)
            assert days is not None
            if index.age_days >= int(days[1]):
                index.state, index.action, index.step = transition["state_name"], 0, 0
                return

    def _steps(self, kind: str, name: str) -> Iterator[Callable[[], object]]:
        def settings(*, value: bool) -> Callable[[], object]:
            return lambda: self._send("PUT", f"/{name}/_settings", {_BLOCK: value})

        match kind:
            case "force_merge":
                yield settings(value=True)
                yield lambda: self._send("POST", f"/{name}/_forcemerge?max_num_segments=1")
                yield lambda: None  # it waits for the merge
            case "read_write":
                yield settings(value=False)
            case "delete":
                yield lambda: self._delete_index(name)

    def _send(self, method: Method, path: str, body: object | None = None) -> None:
        response = self._server.request(method, path, body)
        assert response.ok, response

    def _delete_index(self, name: str) -> None:
        self._delete(name)
        del self.indices[name]

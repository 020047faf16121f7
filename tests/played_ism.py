"""OpenSearch's index state management, played: the plugin's API and the calls of its steps.

The plugin is in no package registry: neither Maven Central nor PyPI, npm or Debian has it. This
follows its source at the release notes of 2.19, whose steps are still the same in November 2026:
https://github.com/opensearch-project/index-management/tree/2.19

- A pass does one step of one index (``ManagedIndexRunner``). The first one only takes the policy.
- A transition is a step of its own, which names the next state; the pass after it does that state's
  first step (``AttemptTransitionStep``, ``Policy.getStateToExecute``). The first transition whose
  condition holds counts. ``min_index_age`` is from the index's creation, and holds when it is
  reached; without a condition, a transition always holds (``evaluateConditions``). The policy has
  neither ``min_size``, ``min_doc_count``, ``cron`` nor a rollover, and no notification.
- ``force_merge`` sets ``index.blocks.write`` to true, merges, and waits until no shard has more
  segments than asked for. Nothing of it takes the block away (``AttemptSetReadOnlyStep``,
  ``AttemptCallForceMergeStep``, ``WaitForForceMergeStep``). ``read_write`` sets it to false.
- A step that fails three times more, a merge of twelve hours, or a call of the merge that was cut
  off, ends the work on the index until somebody retries it: the block stays.
- Another version of the policy counts for an index after ``change_policy``: at once if its state
  has the same actions in both, and then the action begins anew; else at the state's end
  (``isSafeToChange``, ``initChangePolicy``).
"""

import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.core.json_fields import field_at, integer_or_none, mapping_or_empty, mappings_in_list
from profiler.search_setup.cluster_requests import Method, SearchServer, ServerResponse
from profiler.search_setup.template_install import setup_files

POLICY_SETTING = "index.plugins.index_state_management.policy_id"
_BLOCK = "index.blocks.write"
_NOT_FOUND = {"error": {"reason": "Policy not found"}}


def policy_before() -> dict[str, Any]:
    """The policy of earlier versions, whose merge closed an index for good after 40 days."""
    policy = copy.deepcopy(setup_files().policies["opensearch"]["policy"])
    current, past, _, deleted = policy["states"]
    current["transitions"][0]["conditions"]["min_index_age"] = "40d"
    past["transitions"] = [{"state_name": "deleted", "conditions": {"min_index_age": "400d"}}]
    return {**policy, "states": [current, past, deleted]}


@dataclass
class ManagedIndex:
    """An index with its own copy of a policy, and where it is in it. ``age_days`` is played, and
    ``is_failed``: its work has ended.
    """

    policy_id: str
    age_days: float = 0
    is_failed: bool = False
    seq_no: int | None = None
    states: list[dict[str, Any]] = field(default_factory=list)
    state: str | None = None
    next_state: str | None = None
    action: int = 0
    step: int = 0
    changed_to: str | None = None
    is_safe: bool = False

    @property
    def current(self) -> dict[str, Any]:
        """The state whose action is the next one."""
        wanted = self.next_state or self.state
        return next(state for state in self.states if state["name"] == wanted)

    @property
    def is_waiting(self) -> bool:
        """Whether all actions of the state are done."""
        action = 0 if self.next_state else self.action
        return action >= len(self.current["actions"])

    def enter(self) -> None:
        """Begin the state that the last pass has named."""
        if self.next_state is not None:
            self.state, self.next_state = self.next_state, None
            self.action = self.step = 0


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
                    index = self.indices[name]
                    index.changed_to = body["policy_id"]
                    index.is_safe = self._is_safe(index)
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
                        "action": {"failed": index.is_failed},
                        "info": {"message": "Force merge timed out"} if index.is_failed else {},
                        "enabled": not index.is_failed,
                    }
        return {**known, "total_managed_indices": len(known) - len(self.unmanaged)}

    def run(self, passes: int = 1) -> None:
        """Let the plugin's job look at each index so many times."""
        for _ in range(passes):
            for name, index in list(self.indices.items()):
                self._run_one(name, index)

    def _run_one(self, name: str, index: ManagedIndex) -> None:
        if index.is_failed:
            return
        if index.seq_no is None:
            index.seq_no, policy = self.policies[index.policy_id]
            index.states, index.state = policy["states"], policy["default_state"]
        elif index.changed_to is not None and (index.is_safe or index.is_waiting):
            self._change(index, index.changed_to)
        elif index.is_waiting:
            index.enter()
            self._transit(index)
        else:
            index.enter()
            ((kind, options),) = index.current["actions"][index.action].items()
            steps = [*self._steps(kind, options, name)]
            if steps[index.step]() is False:
                return
            index.step += 1
            if index.step == len(steps):
                index.action, index.step = index.action + 1, 0

    def _change(self, index: ManagedIndex, policy_id: str) -> None:
        """Take the other policy, in the state whose actions were begun last."""
        if index.is_safe and not self._is_safe(index):
            index.is_safe = False
            return
        if index.is_waiting and index.next_state is None:
            index.action = sys.maxsize  # in the state's transition, whatever actions are new
        index.next_state, index.changed_to, index.step = None, None, 0
        index.policy_id = policy_id
        index.seq_no, policy = self.policies[policy_id]
        index.states = policy["states"]

    def _is_safe(self, index: ManagedIndex) -> bool:
        """Whether the state has actions of the same kinds in the new policy."""
        if index.state is None:
            return True
        kinds = []
        for states in (index.states, self.policies[index.changed_to or ""][1]["states"]):
            of_state = [state["actions"] for state in states if state["name"] == index.state]
            kinds.append([[*map(set, actions)] for actions in of_state])
        return bool(kinds[0]) and kinds[0] == kinds[1]

    def _transit(self, index: ManagedIndex) -> None:
        for transition in index.current["transitions"]:
            age = transition.get("conditions", {}).get("min_index_age", "0d")
            days = re.fullmatch(r"(\d+)d", age)
            assert days is not None
            if index.age_days >= int(days[1]):
                index.next_state = transition["state_name"]
                return

    def _steps(
        self, kind: str, options: Mapping[str, Any], name: str
    ) -> Iterator[Callable[[], object]]:
        """The steps of an action. One that returns False is repeated in the next pass."""

        def settings(*, value: bool) -> Callable[[], object]:
            return lambda: self._send("PUT", f"/{name}/_settings", {_BLOCK: value})

        match kind:
            case "force_merge":
                most = options["max_num_segments"]
                yield settings(value=True)
                yield lambda: self._send("POST", f"/{name}/_forcemerge?max_num_segments={most}")
                yield lambda: self._most_segments(name) <= most
            case "read_write":
                yield settings(value=False)
            case "delete":
                yield lambda: self._delete_index(name)

    def _most_segments(self, name: str) -> int:
        """Of a shard of the index. A refresh shows a merge: the server's own may come after all
        passes of a test.
        """
        self._send("POST", f"/{name}/_refresh")
        response = self._server.request("GET", f"/{name}/_stats/segments?level=shards")
        assert response.is_success, response
        index = mapping_or_empty(
            mapping_or_empty(mapping_or_empty(response.body).get("indices")).get(name)
        )
        copies = [
            copy
            for one in mapping_or_empty(index.get("shards")).values()
            for copy in mappings_in_list(one)
        ]
        return max(
            (integer_or_none(field_at(copy, "segments.count")) or 0 for copy in copies), default=0
        )

    def _send(self, method: Method, path: str, body: object | None = None) -> None:
        response = self._server.request(method, path, body)
        assert response.is_success, response

    def _delete_index(self, name: str) -> None:
        self._delete(name)
        del self.indices[name]

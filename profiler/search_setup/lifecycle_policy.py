"""The lifecycle policy of the indices, in the API of either engine, and the indices that a policy
has closed for writing.

OpenSearch's ``force_merge`` sets ``index.blocks.write`` and leaves it, as Elasticsearch's
``forcemerge`` did before version 8. A document of a task that lived long then finds an index that
refuses it. OpenSearch's policy therefore has a state after the merge whose ``read_write`` takes the
block away; Elasticsearch's has no merge. An index keeps the version of the ISM policy that it has
had first, until the policy is changed.
https://docs.opensearch.org/2.19/im-plugin/ism/api/

A policy deletes. An existing index without one therefore gets none: a person may have taken it
away to keep the index. Without the right to read or write the policy, a template keeps the
lifecycle that it has.
"""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from profiler.core.bounded_batches import batches
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import (
    count_or_none,
    field_at,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.text import first_names
from profiler.search_setup.cluster_requests import (
    NO_RIGHTS,
    Product,
    SearchServer,
    ServerResponse,
    TemplateStep,
    check_put,
    rejection_text,
)

_ISM: Final = "/_plugins/_ism"
_ISM_POLICY: Final = "index.plugins.index_state_management.policy_id"
_ILM_POLICY: Final = "index.lifecycle.name"
_WRITE_BLOCK_SETTING: Final = "index.blocks.write"
# An index with none of the settings that are asked for is left out of the answer.
_EACH_HAS: Final = "index.uuid"
# The states of our policy in which its merge has closed the index.
_MERGED_STATES: Final = ("past", "writable")
# Of an index whose policy has failed, and is not carried out any more until somebody retries it.
_CAN_FAIL: Final = ("action", "retry_info")
# Elasticsearch 7.17 blocks an index that it merges, 8.7 does not.
_BLOCKING_MAJOR: Final = 7
# A server that answers so does not say whether it has the feature.
_UNSAID: Final = (*NO_RIGHTS, HTTPStatus.TOO_MANY_REQUESTS)
# Names in an address, which has at most 4,096 characters.
_MAX_NAMES: Final = 50


class LifecyclePolicy:
    """The lifecycle policy of indices with a prefix."""

    def __init__(self, server: SearchServer, product: Product, name: str) -> None:
        self._server = server
        self._product = product
        self.feature = "ILM"
        self.name = name
        self._path = f"/_ilm/policy/{name}"
        if self._is_opensearch:
            self.feature = "ISM"
            self._path = f"{_ISM}/policies/{name}"
        existing = self._read_existing()
        # Without support, the server reads the path as an index (Elasticsearch 7) or has no handler
        # (8, OpenSearch).
        said = str(existing.body).lower()
        is_unknown = existing.status == HTTPStatus.NOT_FOUND and "policy not found" in said
        self.is_supported = existing.is_success or is_unknown
        self._is_unsaid = (
            existing.status in _UNSAID or existing.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        )
        # Why it is left out, after its name.
        self.absence = ""
        if self._is_unsaid:
            self.absence = f" ({rejection_text(existing)})"
        elif not self.is_supported:
            self.absence = f": this server has no {self.feature}"

    def _read_existing(self) -> ServerResponse:
        """Read the policy that the server has."""
        answer = self._server.request("GET", self._path)
        self._existing: Mapping[str, Any] = (
            mapping_or_empty(answer.body) if answer.is_success else {}
        )
        return answer

    @property
    def _is_opensearch(self) -> bool:
        return self._product.engine == "opensearch"

    def install(self, body: Mapping[str, Any]) -> None:
        """Install or replace the policy.

        OpenSearch requires the version of the policy to be replaced, and makes a new one also of
        the same policy. Without the right to write it, it stays as it is. Raises TaskProfilerError.
        """
        path = self._path
        if self._is_opensearch and self._existing:
            if _has_all_wanted(self._existing.get("policy"), body["policy"]):
                return
            path += f"?if_seq_no={self._existing['_seq_no']}"
            path += f"&if_primary_term={self._existing['_primary_term']}"
        answer = self._server.request("PUT", path, body)
        if answer.status in NO_RIGHTS:
            self.absence = f" ({rejection_text(answer)})"
            self.is_supported = bool(self._existing)
            self._is_unsaid = not self._existing
            return
        if answer.status == HTTPStatus.CONFLICT:  # somebody else has written it meanwhile
            self._read_existing()
            if _has_all_wanted(self._existing.get("policy"), body["policy"]):
                return
        check_put(answer, f"lifecycle policy {self.name}")
        self._existing = {**self._existing, **mapping_or_empty(answer.body)}

    def template_settings(self, name: str) -> Mapping[str, Any]:
        """The lifecycle in the settings of an index template: this policy. If the server does not
        say whether it has the policy, what the template has. Raises TaskProfilerError.
        """
        if self._is_opensearch:
            return {}
        if self.is_supported:
            return {"name": self.name}
        if not self._is_unsaid:
            return {}
        response = self._server.request("GET", f"/_index_template/{name}")
        if not response.is_success and response.status != HTTPStatus.NOT_FOUND:
            raise TaskProfilerError(
                f"The index template {name} cannot be read ({rejection_text(response)}), and to "
                "replace it could remove its lifecycle: it was not changed."
            )
        for template in mappings_in_list(mapping_or_empty(response.body).get("index_templates")):
            if template.get("name") == name:
                settings = field_at(template, "index_template.template.settings.index.lifecycle")
                return mapping_or_empty(settings)
        return {}

    def update_indices(self, patterns: Sequence[str], *, dry_run: bool) -> Iterator[TemplateStep]:
        """Let existing indices with the policy have its newest version, and be written again
        where a merge of the policy has blocked that.
        """
        if self._is_opensearch:
            yield from self._mend_opensearch_indices(patterns, dry_run=dry_run)
            return
        if self._product.major <= _BLOCKING_MAJOR:
            yield from self._unblock_writes(patterns, with_setting=_ILM_POLICY, dry_run=dry_run)
        asked = f"{_ILM_POLICY},{_EACH_HAS}"
        listed = self._server.request(
            "GET", f"/{','.join(patterns)}/_settings/{asked}?flat_settings=true"
        )
        if not listed.is_success:
            yield self._unread_step(listed)
            return
        names = [
            name
            for name, told in sorted(mapping_or_empty(listed.body).items())
            if not mapping_or_empty(mapping_or_empty(told).get("settings")).get(_ILM_POLICY)
        ]
        yield from self._name_without_policy(
            names, f'PUT /NAME/_settings {{"{_ILM_POLICY}": "{self.name}"}}'
        )

    def _unread_step(self, response: ServerResponse) -> TemplateStep:
        """Which policy existing indices have is not known."""
        what = f"lifecycle policy {self.name} in existing indices ({rejection_text(response)})"
        return TemplateStep(what=what, done=False)

    def _name_without_policy(self, names: Sequence[str], request: str) -> Iterator[TemplateStep]:
        """Name existing indices without a policy, which nothing deletes."""
        if names:
            have = "it has none and is kept" if len(names) == 1 else "they have none and are kept"
            what = f"lifecycle policy {self.name} in {first_names(names)}: {have}"
            yield TemplateStep(what=f"{what}; {request} adds it", done=False)

    def _mend_opensearch_indices(
        self, patterns: Sequence[str], *, dry_run: bool
    ) -> Iterator[TemplateStep]:
        explained = self._server.request("GET", f"{_ISM}/explain/{','.join(patterns)}")
        if not explained.is_success:
            yield self._unread_step(explained)
            return
        outdated: list[str] = []
        merged: list[str] = []
        without: list[str] = []
        for name, told in sorted(mapping_or_empty(explained.body).items()):
            index = mapping_or_empty(told)
            if index and not index.get(_ISM_POLICY):
                without.append(name)
            if index.get(_ISM_POLICY) != self.name:
                continue
            seq_no = count_or_none(index.get("policy_seq_no"))
            if seq_no is not None and seq_no != self._existing.get("_seq_no"):
                outdated.append(name)
            if mapping_or_empty(index.get("state")).get("name") in _MERGED_STATES:
                merged.append(name)
        for names in batches(outdated, _MAX_NAMES):
            yield self._change_policy(names, dry_run=dry_run)
        for names in batches(merged, _MAX_NAMES):
            yield from self._unblock_writes(names, dry_run=dry_run)
        yield from self._name_failed(mapping_or_empty(explained.body))
        request = f'POST {_ISM}/add/NAME {{"policy_id": "{self.name}"}}'
        yield from self._name_without_policy(without, request)

    def _name_failed(self, indices: Mapping[str, object]) -> Iterator[TemplateStep]:
        """Name the indices on which OpenSearch carries the policy out no more, and why."""
        reasons: dict[str, str] = {}
        for name, told in sorted(indices.items()):
            index = mapping_or_empty(told)
            has_failed = any(
                mapping_or_empty(index.get(part)).get("failed") is True for part in _CAN_FAIL
            )
            if has_failed and index.get(_ISM_POLICY) == self.name:
                reasons[name] = (
                    text_or_none(mapping_or_empty(index.get("info")).get("message"))
                    or "without a reason"
                )
        if reasons:
            why = first_names([*dict.fromkeys(reasons.values())])
            what = f"lifecycle policy {self.name} in {first_names([*reasons])}: it has failed"
            remedy = f"POST {_ISM}/retry/NAME goes on with it"
            yield TemplateStep(what=f"{what} ({why}); {remedy}", done=False)

    def _change_policy(self, names: Sequence[str], *, dry_run: bool) -> TemplateStep:
        noun = "existing index" if len(names) == 1 else "existing indices"
        what = f"lifecycle policy {self.name} in {len(names)} {noun}"
        if dry_run:
            return TemplateStep(what=what, done=True)
        response = self._server.request(
            "POST", f"{_ISM}/change_policy/{','.join(names)}", {"policy_id": self.name}
        )
        failed = mapping_or_empty(response.body).get("failed_indices")
        if not response.is_success:
            return TemplateStep(what=f"{what} ({rejection_text(response)})", done=False)
        if failed:
            return TemplateStep(what=f"{what}: {_failure_text(failed)}", done=False)
        return TemplateStep(what=what, done=True)

    def _unblock_writes(
        self, names: Sequence[str], *, dry_run: bool, with_setting: str | None = None
    ) -> Iterator[TemplateStep]:
        """Open those of the indices that nobody can write to; only those with this policy in a
        setting.
        """
        asked = ",".join(filter(None, (_WRITE_BLOCK_SETTING, with_setting)))
        response = self._server.request(
            "GET", f"/{','.join(names)}/_settings/{asked}?flat_settings=true"
        )
        if not response.is_success:
            what = f"the write blocks of {', '.join(names)} ({rejection_text(response)})"
            yield TemplateStep(what=what, done=False)
            return
        blocked: list[str] = []
        for name, told in sorted(mapping_or_empty(response.body).items()):
            settings = mapping_or_empty(mapping_or_empty(told).get("settings"))
            is_ours = with_setting is None or settings.get(with_setting) == self.name
            if settings.get(_WRITE_BLOCK_SETTING) == "true" and is_ours:
                blocked.append(name)
        for some in batches(blocked, _MAX_NAMES):
            what = f"writing to {', '.join(some)}, which {self.feature} had blocked"
            if dry_run:
                yield TemplateStep(what=what, done=True)
                continue
            path = f"/{','.join(some)}/_settings"
            response = self._server.request("PUT", path, {_WRITE_BLOCK_SETTING: None})
            if not response.is_success:
                what += f" ({rejection_text(response)})"
            yield TemplateStep(what=what, done=response.is_success)


def _failure_text(failed: object) -> str:
    """The first failure of a change of policies, and how many there are."""
    listed = failed if isinstance(failed, list) else [failed]
    first = mapping_or_empty(listed[0])
    others = "" if len(listed) == 1 else f" (and {len(listed) - 1} more)"
    return f"{first.get('index_name')}: {first.get('reason')}{others}"


def _has_all_wanted(present: object, wanted: object) -> bool:
    """Whether a server has everything that is wanted, whatever it adds to objects."""
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(
            _has_all_wanted(present.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(map(_has_all_wanted, present, wanted))
        )
    return present == wanted

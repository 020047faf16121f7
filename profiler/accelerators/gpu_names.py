"""Which GPUs a selector means, among those that are visible. Pure.

The selectors are those that NVIDIA's container runtime takes in ``NVIDIA_VISIBLE_DEVICES``: an
index, a UUID or its beginning, and for the instances of a GPU that is cut by MIG its index or UUID
(all of them), ``index:mig_index``, or an instance's own UUID.
"""

from collections.abc import Collection, Iterator

from profiler.sources.nvml.readings import GpuFacts

# Below that it is the beginning of every UUID.
_UUID_TYPE_PREFIXES = ("gpu-", "mig-")


def match_uuids(selectors: Collection[str], visible: Collection[GpuFacts]) -> frozenset[str]:
    """The UUIDs of those that are meant; what is ambiguous or names nothing adds none."""
    return frozenset(uuid for selector in selectors for uuid in _matching_uuids(selector.casefold(), visible))


def _matching_uuids(selector: str, visible: Collection[GpuFacts]) -> Iterator[str]:
    uuid = _resolve_uuid(selector, visible)
    for facts in visible:
        if uuid in _uuids(facts) or selector in (str(facts.index), f"{facts.index}:{facts.mig_index}"):
            yield facts.uuid


def _resolve_uuid(selector: str, visible: Collection[GpuFacts]) -> str | None:
    """What begins so, if that is one GPU or instance only."""
    known = {uuid for facts in visible for uuid in _uuids(facts)}
    if selector in known:
        return selector
    prefixed = [uuid for uuid in known if uuid.startswith(selector)]
    is_uuid_prefix = selector.startswith(_UUID_TYPE_PREFIXES) and selector not in _UUID_TYPE_PREFIXES
    return prefixed[0] if is_uuid_prefix and len(prefixed) == 1 else None


def _uuids(facts: GpuFacts) -> tuple[str, ...]:
    """Its own UUID, and that of the GPU of which it is an instance."""
    return tuple(uuid.casefold() for uuid in (facts.uuid, facts.parent_uuid) if uuid is not None)

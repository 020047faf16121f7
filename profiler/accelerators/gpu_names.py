"""Which GPUs a spelling means, among those that are visible. Pure.

The spellings are those that NVIDIA's container runtime takes in ``NVIDIA_VISIBLE_DEVICES``: an
index, a UUID or its beginning, and for the instances of a GPU that is cut by MIG its index or UUID
(all of them), ``index:place``, or an instance's own UUID.
"""

from collections.abc import Collection, Iterator

from profiler.sources.nvml.readings import GpuFacts

# Below that it is the beginning of every UUID.
_PREFIXES = ("gpu-", "mig-")


def named(spellings: Collection[str], visible: Collection[GpuFacts]) -> frozenset[str]:
    """The UUIDs of those that are meant; what is ambiguous or names nothing adds none."""
    return frozenset(uuid for spelling in spellings for uuid in _meant(spelling.casefold(), visible))


def _meant(spelling: str, visible: Collection[GpuFacts]) -> Iterator[str]:
    uuid = _whole_uuid(spelling, visible)
    for facts in visible:
        if uuid in _uuids(facts) or spelling in (str(facts.index), f"{facts.index}:{facts.place}"):
            yield facts.uuid


def _whole_uuid(spelling: str, visible: Collection[GpuFacts]) -> str | None:
    """What begins so, if that is one GPU or instance only."""
    known = {uuid for facts in visible for uuid in _uuids(facts)}
    if spelling in known:
        return spelling
    begun = [uuid for uuid in known if uuid.startswith(spelling)]
    is_told = spelling.startswith(_PREFIXES) and spelling not in _PREFIXES
    return begun[0] if is_told and len(begun) == 1 else None


def _uuids(facts: GpuFacts) -> tuple[str, ...]:
    """Its own UUID, and that of the GPU of which it is an instance."""
    return tuple(uuid.casefold() for uuid in (facts.uuid, facts.parent_uuid) if uuid is not None)

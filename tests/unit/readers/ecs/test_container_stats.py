"""The dialects of /task/stats, each as the agents write it, shortened."""

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import (
    StatsReading,
    UndecodedSample,
    decode_stats,
    decode_stats_lazily,
    decoded_sample_of,
    parse_device_mapper_majors,
)
from tests.cases import each_case
from tests.values import mutated

READ = "2026-03-01T10:00:02.500000001Z"
READ_NS = 1772359202500000001

CGROUP_V1: dict[str, Any] = {
    "read": READ,
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 259, "minor": 1, "op": "Read", "value": 1000},
            {"major": 259, "minor": 1, "op": "Write", "value": 7},
            {"major": 259, "minor": 1, "op": "Sync", "value": 1000},
            {"major": 259, "minor": 1, "op": "Total", "value": 1007},
            {"major": 259, "minor": 0, "op": "Read", "value": 200},
        ]
    },
    "cpu_stats": {
        "cpu_usage": {"total_usage": 322633383, "percpu_usage": [1, 2]},
        "online_cpus": 2,
    },
    "precpu_stats": {"cpu_usage": {"total_usage": 0}},
    "memory_stats": {
        "usage": 84111360,
        "max_usage": 84238336,
        "failcnt": 3,
        "stats": {
            "cache": 42442752,
            "inactive_file": 1,
            "total_cache": 42442752,
            "total_inactive_file": 39100416,
            "total_active_file": 3379200,
            "total_mapped_file": 33927168,
            "total_rss": 39469056,
            "rss": 4,
            "active_file": 2,
            "mapped_file": 3,
        },
        "limit": 9223372036854771712,
    },
    "networks": {
        "eth1": {"rx_bytes": 129, "tx_bytes": 34, "rx_packets": 8},
        "eth0": {"rx_bytes": 1, "tx_bytes": 2},
    },
}
CGROUP_V2: dict[str, Any] = {
    "read": READ,
    "pids_stats": {"current": 33, "limit": 404},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 259, "minor": 0, "op": "read", "value": 60960768},
            {"major": 259, "minor": 0, "op": "write", "value": 57344},
        ]
    },
    "cpu_stats": {"cpu_usage": {"total_usage": 331125000}, "online_cpus": 2},
    "memory_stats": {
        "usage": 65249280,
        "stats": {
            "inactive_file": 17641472,
            "active_file": 7655424,
            "file_mapped": 19968000,
            "file": 25296896,
            "shmem": 0,
            "anon": 37691392,
            "slab": 908520,
            "slab_reclaimable": 383648,
        },
        "limit": 268435456,
    },
    "networks": {"eth0": {"rx_bytes": 101869, "tx_bytes": 43958}},
}


def decode(document: object, majors: frozenset[int] | None = None) -> StatsReading:
    reading = decode_stats(json.dumps(document).encode(), majors)
    assert not isinstance(reading, Unavailable)
    return reading


def changed(
    document: dict[str, Any], majors: frozenset[int] | None = None, **parts: object
) -> ContainerSample:
    sample = decode({"id": {**document, **parts}}, majors)["id"]
    assert isinstance(sample, ContainerSample)
    return sample


SAMPLE_V1 = ContainerSample(
    read_ns=READ_NS,
    cpu_ns=322633383,
    memory_used_bytes=84111360 - 42479616,
    memory_cache_bytes=42479616,
    memory_mapped_file_bytes=33927168,
    memory_kernel_bytes=84111360 - 39469056 - 42442752,
    memory_usage_peak_bytes=84238336,
    memory_limit_bytes=9223372036854771712,
    memory_limit_hits=3,
    network_rx_bytes=130,
    network_tx_bytes=36,
    block_read_bytes=1200,
    block_write_bytes=7,
)
SAMPLE_V2 = ContainerSample(
    read_ns=READ_NS,
    cpu_ns=331125000,
    memory_used_bytes=65249280 - 25296896 - 383648,
    memory_cache_bytes=25296896 + 383648,
    memory_mapped_file_bytes=19968000,
    memory_limit_bytes=268435456,
    network_rx_bytes=101869,
    network_tx_bytes=43958,
    block_read_bytes=60960768,
    block_write_bytes=57344,
    pids=33,
)


def test_memory_used_is_the_memory_that_is_needed() -> None:
    cases: tuple[tuple[dict[str, Any], int | None], ...] = (
        ({"usage": 100, "stats": {"total_cache": 30}}, 70),
        ({"usage": 100, "stats": {"cache": 40}}, 60),
        ({"usage": 100, "stats": {"inactive_file": 250}}, 0),
        ({"usage": 100, "stats": {"active_file": 30, "inactive_file": 40, "file": 80}}, 30),
        ({"usage": 100, "stats": {"active_file": 30, "inactive_file": 40, "file_mapped": 50}}, 30),
        (
            {
                "usage": 100,
                "stats": {"active_file": 30, "inactive_file": 40, "mapped_file": 90, "cache": 80},
            },
            30,
        ),
        ({"usage": 100, "stats": {"active_file": 300, "inactive_file": 40}}, 0),
        ({"usage": 100, "stats": {"inactive_file": 40, "mapped_file": 30, "cache": 80}}, 60),
        ({"usage": 100, "stats": {"active_file": 30, "mapped_file": 10, "cache": 80}}, 70),
        # A batch of 20 that looked at many files; one that shares 40 and has read a file of 30.
        (
            {
                "usage": 100,
                "stats": {"active_file": 0, "inactive_file": 20, "slab_reclaimable": 60},
            },
            20,
        ),
        (
            {
                "usage": 100,
                "stats": {
                    "total_active_file": 20,
                    "total_inactive_file": 10,
                    "total_mapped_file": 40,
                    "total_cache": 70,
                },
            },
            70,
        ),
        ({"usage": 100, "stats": {}}, 100),
        ({"usage": 100}, 100),
        ({"stats": {"inactive_file": 5}}, None),
        ({}, None),
    )
    for memory, used in cases:
        assert changed(CGROUP_V1, memory_stats=memory).memory_used_bytes == used, memory


@pytest.mark.parametrize("name", ["total_inactive_file", "inactive_file", "total_cache"])
def test_memory_of_which_more_can_be_dropped_than_is_used_is_impossible(name: str) -> None:
    stats = {name: 250 * 2**20}
    sample = changed(CGROUP_V1, memory_stats={"usage": 100 * 2**20, "stats": stats})
    assert sample.memory_used_bytes is None
    assert sample.is_memory_impossible
    assert not changed(CGROUP_V1, memory_stats={"stats": stats}).is_memory_impossible


def test_what_of_its_files_a_container_keeps_mapped_is_told_apart() -> None:
    lists = {"total_active_file": 20, "total_inactive_file": 10}
    cases: tuple[tuple[dict[str, Any], int | None], ...] = (
        ({**lists, "total_mapped_file": 25, "total_cache": 30}, 25),
        # It also maps 40 of shared memory; the statistics of version 1 do not tell.
        ({**lists, "total_mapped_file": 65, "total_cache": 70}, 25),
        ({"active_file": 20, "inactive_file": 10, "file_mapped": 65, "shmem": 40, "file": 70}, 25),
        ({**lists, "total_mapped_file": 0}, 0),
        ({**lists, "total_mapped_file": 500}, 30),
        ({"total_cache": 30, "total_mapped_file": 25}, 25),
        # Some of them count as used, or nothing tells how many there are.
        ({"inactive_file": 10, "file_mapped": 25}, None),
        (lists, None),
        ({"total_mapped_file": 25}, None),
        ({}, None),
    )
    for stats, mapped in cases:
        sample = changed(CGROUP_V1, memory_stats={"usage": 100, "stats": stats})
        assert sample.memory_mapped_file_bytes == mapped, stats


def test_without_a_readable_time_there_are_no_stats() -> None:
    nothing: list[Any] = [
        None,
        {},
        {"read": "0001-01-01T00:00:00Z", "cpu_stats": {}},
        {"cpu_stats": {}},
    ]
    nothing += [
        {**CGROUP_V2, "read": wrong} for wrong in ("yesterday", "", True, 1772359202, [READ], None)
    ]
    for none in nothing:
        assert list(decode({"gone": none, "here": CGROUP_V2})) == ["here"]


def reads(*values: tuple[object, object, int]) -> list[dict[str, Any]]:
    return [
        {"major": major, "minor": minor, "op": "Read", "value": value}
        for major, minor, value in values
    ]


STACK = reads((253, 1, 500), (253, 2, 480), (253, 5, 480))
VIRTIO = reads((253, 0, 300), (253, 16, 400))
OF_252 = reads((252, 0, 280), (252, 1, 290))


def test_a_stack_of_block_devices_counts_once() -> None:
    cases: tuple[tuple[list[dict[str, Any]], set[int] | None, int], ...] = (
        ([*reads((202, 26368, 500)), *STACK], None, 500),
        (STACK, {253}, 500),
        # As a capture with the devicemapper storage driver: the kernel attributes most of the reads
        # to the node.
        (
            reads((202, 26368, 5_600_000), (253, 0, 1_000_000), (253, 3, 95_900_000)),
            None,
            95_900_000,
        ),
        # Disks are not a stack because of their number.
        (VIRTIO, None, 700),
        ([*VIRTIO, *reads((8, 0, 50))], set(), 750),
        ([*VIRTIO, *reads((8, 0, 50))], {252}, 750),
        (reads((252, 0, 0)), {252}, 0),
        ([*reads((259, 0, 300)), *OF_252], {252}, 300),
        (OF_252, {252}, 290),
        ([{"major": 252, "op": "Read", "value": 20}, *OF_252], {252}, 300),  # node 0 by default
        ([*reads((253, 1, 300), (253, 2, 400)), *reads((253, 1, 200))], {253}, 500),
        # Loop devices and md lie on disks, too.
        (reads((7, 0, 67_108_864), (254, 0, 67_494_912)), set(), 67_494_912),
        (reads((7, 0, 67_108_864), (254, 0, 67_494_912)), None, 67_494_912),
        (reads((7, 0, 500), (254, 0, 20)), set(), 500),
        (reads((7, 0, 500)), set(), 500),
        (reads((7, 0, 500)), None, 500),
        (reads((9, 127, 500), (8, 0, 250), (8, 16, 260)), None, 510),
        (reads((9, 127, 500), (259, 0, 250)), set(), 500),
        (reads((9, 127, 500), (8, 0, 510), (8, 16, 510)), None, 1020),  # a mirror's disks have both
        ([*VIRTIO, *reads((7, 0, 50))], None, 700),  # no device-mapper because of a loop device
        (reads((253, 0, 480), (7, 0, 470), (259, 0, 500)), {253}, 500),
        (reads((253, 0, 480), (9, 0, 470)), {253}, 480),
    )
    for entries, majors, read in cases:
        known = None if majors is None else frozenset(majors)
        sample = changed(CGROUP_V1, known, blkio_stats={"io_service_bytes_recursive": entries})
        assert sample.block_read_bytes == read, (entries, majors)


def test_the_numbers_of_device_mapper_nodes_in_proc_devices() -> None:
    text = (
        "Character devices:\n  1 mem\n253 device-mapper\n\nBlock devices:\n  7 loop\n252 "
        "device-mapper\n253 x\n"
    )
    assert parse_device_mapper_majors(text) == frozenset((252,))
    others = (
        "Block devices:\n  8 sd\n  9 md\n147 drbd\n251 bcache\n252 mdp\n253 zram\n254 virtblk\n"
    )
    assert parse_device_mapper_majors(others) == frozenset((147, 251, 252))
    assert parse_device_mapper_majors("Block devices:\n  8 sd\n") == frozenset()
    assert parse_device_mapper_majors("") is None
    assert parse_device_mapper_majors("Character devices:\n  1 mem\n") is None


PARTS = {
    "cpu_stats": ("cpu_ns",),
    "memory_stats": (
        *("memory_used_bytes", "memory_cache_bytes"),
        *("memory_mapped_file_bytes", "memory_kernel_bytes"),
        *("memory_usage_peak_bytes", "memory_limit_bytes", "memory_limit_hits"),
    ),
    "networks": ("network_rx_bytes", "network_tx_bytes"),
    "blkio_stats": ("block_read_bytes", "block_write_bytes"),
    "pids_stats": ("pids",),
}


@each_case("wrong", ["1", True, -1, 1.5, 2**63, [1], {"a": 1}, None])
def test_numbers_of_a_wrong_type_are_absent_and_cost_no_others(wrong: Any) -> None:
    memory = {
        **CGROUP_V1["memory_stats"],
        **dict.fromkeys(("usage", "max_usage", "limit", "failcnt"), wrong),
    }
    cpu, pids = {"cpu_usage": {"total_usage": wrong}}, {"current": wrong}
    found = changed(CGROUP_V1, cpu_stats=cpu, memory_stats=memory, pids_stats=pids)
    assert found == replace(SAMPLE_V1, **dict.fromkeys(("cpu_ns", *PARTS["memory_stats"])))


@each_case("missing", [None, {}])
@each_case(("part", "fields"), PARTS.items())
def test_a_part_that_is_missing_costs_its_own_numbers_alone(
    part: str, fields: tuple[str, ...], missing: Any
) -> None:
    document = {**CGROUP_V1, "pids_stats": {"current": 33}}
    assert changed({**document, part: missing}) == replace(
        changed(document), **dict.fromkeys(fields)
    )


def test_an_invalid_response_gives_a_reason() -> None:
    deep = b'{"id":' + b"[" * 100_000
    for body in (b"", b"{", b"null", b"[]", b'"x"', b'{"id": {"read"', b'{"\xff": {}}', deep):
        reading = decode_stats(body)
        assert isinstance(reading, Unavailable)
        assert reading.reason.startswith(
            "/task/stats answered with something else than the stats of containers: "
        )


@pytest.mark.parametrize(
    "wrong", ["x", [], 7, {"memory_stats": {"stats": []}}, {"networks": {"eth0": "x"}}]
)
def test_malformed_stats_of_one_container_cost_no_others(wrong: object) -> None:
    entry = {**CGROUP_V2, **wrong} if isinstance(wrong, dict) else wrong
    reading = dict(decode({"1": CGROUP_V1, "wrong": entry, "2": CGROUP_V2}))
    assert isinstance(reading.pop("wrong"), Unavailable)
    assert reading == {"1": SAMPLE_V1, "2": SAMPLE_V2}
    binary = decode_stats(b'{"id": {"read": "\xff"}}')
    assert isinstance(binary, dict)
    assert isinstance(binary["id"], Unavailable)
    both = json.dumps(
        {"1": CGROUP_V1, "2": CGROUP_V2}
    )  # and out of range in members that are not used
    assert (
        decode_stats(both.replace(" 8}", " 1e999}").replace(" 404}", " 1e999}").encode()) == reading
    )
    assert (
        changed(CGROUP_V2, networks={"eth0": None, "eth1": CGROUP_V2["networks"]["eth0"]})
        == SAMPLE_V2
    )


@given(mutated(CGROUP_V1, CGROUP_V2))
def test_any_mutated_document_gives_a_reading_or_a_reason(document: object) -> None:
    reading = decode_stats(json.dumps({"mutated": document, "other": CGROUP_V2}).encode())
    assert not isinstance(reading, Unavailable)
    assert reading["other"] == SAMPLE_V2
    sample = reading.get("mutated")
    for name in ContainerSample.__struct_fields__ if isinstance(sample, ContainerSample) else ():
        value = getattr(sample, name)
        assert value is None or (isinstance(value, int) and 0 <= value < 2**63)


def test_a_late_sample_tells_its_time_and_the_most_that_is_used_before_it_is_made() -> None:
    body = json.dumps({"1": CGROUP_V1, "2": CGROUP_V2, "bare": {"read": READ}, "no": {}}).encode()
    late = decode_stats_lazily(body)
    assert not isinstance(late, Unavailable)
    prompt = decode_stats(body)
    assert not isinstance(prompt, Unavailable)
    assert late.keys() == prompt.keys() == {"1", "2", "bare"}
    known = {}
    for docker_id, sample in late.items():
        assert isinstance(sample, UndecodedSample)
        known[docker_id] = (sample.usage_bytes, sample.kernel_bytes)
        made = decoded_sample_of(sample)
        assert made == prompt[docker_id]
        assert decoded_sample_of(sample) is made
        assert made is not None
        assert made.read_ns == sample.read_ns
        assert made.memory_kernel_bytes == sample.kernel_bytes
    assert known == {
        "1": (84111360, SAMPLE_V1.memory_kernel_bytes),
        "2": (65249280, None),
        "bare": (None, None),
    }
    assert decoded_sample_of(Unavailable("refused")) is None
    assert decoded_sample_of(None) is None
    assert decoded_sample_of(SAMPLE_V2) is SAMPLE_V2

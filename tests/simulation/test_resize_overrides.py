"""Random families with random schedules: what ECS would start before a resize, it starts after.

The rules of RunTask and RegisterTaskDefinition are played here, independently of the command's.
https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html
"""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from profiler.record.record_model import Metrics
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from tests.resize_account import BATCH, KILLED, MONITOR, Account
from tools.moto_server import fake_aws

FAMILIES = 30
SIZES = [(0.25, 512), (0.5, 1024), (1.0, 2048), (1.0, 8192), (2.0, 4096), (4.0, 8192)]
_LEAST_MB = 6  # of a container


class Start(Struct, frozen=True):
    """A schedule or a rule, and what its input overrides."""

    family: str
    name: str
    overrides: Mapping[str, Any]


def refusal(definition: Mapping[str, Any], overrides: Mapping[str, Any]) -> str | None:
    """Why ECS does not start a task; None if it does."""
    cpu_units = int(overrides.get("cpu") or definition["cpu"])
    memory_mb = int(overrides.get("memory") or definition["memory"])
    if Size(cpu_units / 1024, memory_mb) not in LEGAL_SIZES:
        return f"no size {cpu_units}/{memory_mb}"
    by_name = {override["name"]: override for override in overrides.get("containerOverrides", ())}
    reserved_mb = 0
    shares = 0
    for container in definition["containerDefinitions"]:
        started = {**container, **by_name.get(container["name"], {})}
        limit_mb = started.get("memory")
        reservation_mb = started.get("memoryReservation")
        known_mb = [value for value in (limit_mb, reservation_mb) if value is not None]
        if any(not _LEAST_MB <= value <= memory_mb for value in known_mb):
            return f"{container['name']} has {known_mb} of {memory_mb} MiB"
        if limit_mb is not None and (reservation_mb or 0) > limit_mb:
            return f"{container['name']} reserves more than its limit"
        reserved_mb += reservation_mb or limit_mb or 0
        shares += started.get("cpu", 0)
    if reserved_mb > memory_mb or shares > cpu_units:
        return f"{reserved_mb} MiB and {shares} CPU units do not fit"
    return None


def containers(chance: random.Random, cpu_units: int, memory_mb: int) -> list[dict[str, Any]]:
    """A batch, up to eight sidecars, and perhaps the monitor."""
    count = chance.randint(0, 8)
    share_mb = max(_LEAST_MB + 1, (memory_mb - 128) // (count + 2))
    sidecars = []
    for number in range(count):
        sidecar: dict[str, Any] = {"name": f"sidecar-{number}", "image": "proxy:1"}
        if chance.random() < 0.6:
            sidecar["memoryReservation"] = chance.randint(_LEAST_MB, share_mb)
        if chance.random() < 0.4:
            sidecar["memory"] = chance.randint(
                sidecar.get("memoryReservation", _LEAST_MB), share_mb
            )
        if chance.random() < 0.4:
            sidecar["cpu"] = chance.randint(0, cpu_units // (count + 2))
        sidecars.append(sidecar)
    batch = {name: value for name, value in BATCH.items() if name != "memory"}
    limit = chance.choice(["memory", "memoryReservation", ""])
    if limit:
        batch[limit] = chance.randint(share_mb // 2, share_mb)
    monitor = [MONITOR] if chance.random() < 0.8 else []
    return [batch, *sidecars, *monitor]


def overrides(
    chance: random.Random, names: list[str], cpu_units: int, memory_mb: int
) -> dict[str, Any]:
    """What the input of a schedule sets in place of the definition's sizes."""
    given: dict[str, Any] = {}
    if chance.random() < 0.4:
        given["memory"] = str(chance.choice([512, 1024, 2048, 4096, 8192]))
    if chance.random() < 0.3:
        given["cpu"] = str(chance.choice([256, 512, 1024, 2048]))
    if chance.random() < 0.5:
        container: dict[str, Any] = {"name": chance.choice(names)}
        container[chance.choice(["memory", "memoryReservation"])] = chance.randint(6, memory_mb)
        if chance.random() < 0.3:
            container["cpu"] = chance.randint(0, cpu_units)
        given["containerOverrides"] = [container]
    return given


def pascal_case(value: Any) -> Any:
    """RunTask's names as a universal target has them."""
    if isinstance(value, dict):
        return {name[:1].upper() + name[1:]: pascal_case(item) for name, item in value.items()}
    return [pascal_case(item) for item in value] if isinstance(value, list) else value


def made_runs(
    account: Account, chance: random.Random, family: str, size: tuple[float, int]
) -> None:
    """Runs that need a part of the size; perhaps one was killed."""
    definition, _ = account.described(family)
    batch, *others = definition["containerDefinitions"]
    limit_mb = batch.get("memory", size[1])
    sidecars = {}
    for sidecar in others:
        if chance.random() < 0.7:
            sidecars[sidecar["name"]] = Metrics(max_memory_used_mb=chance.choice([1.0, 5.0, 20.0]))
    known: dict[str, Any] = {
        "revision": definition["revision"],
        "size": size,
        "peak_mb": limit_mb * chance.choice([0.02, 0.1, 0.4, 0.85, 0.95]),
        "p95": size[0] * chance.choice([0.05, 0.2, 0.5, 0.95]),
        "others": sidecars,
        "metrics": {"memory_size_mb": limit_mb},
    }
    account.runs(family, chance.choice([5, 25, 40]), **known)
    if chance.random() < 0.15:
        account.runs(family, 1, **KILLED, **known)


def made_start(account: Account, chance: random.Random, start: Start, pinned: str) -> None:
    kind = chance.choice(["schedule", "rule", "universal"])
    if kind == "schedule":
        account.schedule(start.name, pinned, dict(start.overrides))
    elif kind == "rule":
        account.rule(start.name, pinned, Input=json.dumps(start.overrides))
    else:
        request = {"Cluster": "jobs", "TaskDefinition": start.family}
        account.universal_schedule(
            start.name, {**request, "Overrides": pascal_case(start.overrides)}
        )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
)
def test_what_ecs_starts_before_a_resize_it_starts_after(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    starts: list[Start] = []
    with fake_aws() as aws:
        account = Account(aws, tmp_path)
        for number in range(FAMILIES):
            family = f"family-{number}"
            size = chance.choice(SIZES)
            cpu_units = round(size[0] * 1024)
            defined = containers(chance, cpu_units, size[1])
            whole = {"cpu": cpu_units, "memory": size[1], "containerDefinitions": defined}
            assert refusal(whole, {}) is None
            account.family(family, size, containerDefinitions=defined)
            made_runs(account, chance, family, size)
            for of_family in range(chance.randint(0, 2)):
                names = [container["name"] for container in defined]
                given = overrides(chance, names, cpu_units, size[1])
                start = Start(family, f"{family}-{of_family}", given)
                made_start(account, chance, start, chance.choice([family, f"{family}:1"]))
                if refusal(whole, given) is None:
                    starts.append(start)
        rows, _ = account.rows("--register", "--update-schedules", "--yes")
        sized = {family: account.described(family)[0] for family in rows}
    resized = [row for row in rows.values() if row["action"] == "resize"]
    assert len(resized) > FAMILIES // 6
    assert len(starts) > FAMILIES // 3
    for definition in sized.values():
        assert refusal(definition, {}) is None, definition
    for start in starts:
        assert refusal(sized[start.family], start.overrides) is None, (start, rows[start.family])

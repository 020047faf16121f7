"""The GPUs of instance types are those that EC2 itself lists: moto has its answer of
DescribeInstanceTypes.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import boto3
import moto

from profiler.sizing.instance_gpus import _GPUS, gpus_of_type

EC2_ANSWER = Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz"
# Older types, which EC2 no longer lists in moto's Region.
NOT_LISTED = {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}


def listed_gpus() -> dict[str, int]:
    """The NVIDIA GPUs of each type that has some; 0: a part of one."""
    types: dict[str, Any] = json.loads(gzip.decompress(EC2_ANSWER.read_bytes()))
    return {
        name: sum(gpu["Count"] for gpu in known["GpuInfo"]["Gpus"])
        for name, known in types.items()
        if {gpu["Manufacturer"] for gpu in known.get("GpuInfo", {}).get("Gpus", ())} == {"NVIDIA"}
    }


def test_every_type_that_ec2_lists_has_its_gpus_and_parts_are_unknown() -> None:
    listed = listed_gpus()
    assert len(listed) > 50
    assert {name: gpus_of_type(name) or 0 for name in listed} == listed


def test_no_type_is_invented() -> None:
    ours = {f"{family}.{size}" for family, sizes in _GPUS.items() for size in sizes}
    assert ours - listed_gpus().keys() == NOT_LISTED
    model = boto3.session.Session().client("ec2", region_name="us-east-1").meta.service_model
    assert set(model.shape_for("InstanceType").enum) >= ours

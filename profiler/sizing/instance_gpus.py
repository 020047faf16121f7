"""How many NVIDIA GPUs an instance type of EC2 has.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-types.html (accelerated computing). A
type that is missing here has an unknown number; those with parts of a GPU (g6f, gr6f) are missing
on purpose.
"""

from collections.abc import Mapping
from typing import Final

_ONE: Final = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
_G5_FAMILY: Final = {
    **dict.fromkeys(_ONE, 1),
    "12xlarge": 4,
    "24xlarge": 4,
    "48xlarge": 8,
}
_G7_FAMILY: Final = {
    "2xlarge": 1,
    "4xlarge": 1,
    "8xlarge": 1,
    "12xlarge": 2,
    "24xlarge": 4,
    "48xlarge": 8,
}
_GPUS: Final[Mapping[str, Mapping[str, int]]] = {
    "g4dn": {**dict.fromkeys(_ONE, 1), "12xlarge": 4, "metal": 8},
    "g5": _G5_FAMILY,
    "g5g": {**dict.fromkeys(_ONE, 1), "16xlarge": 2, "metal": 2},
    "g6": _G5_FAMILY,
    "g6e": _G5_FAMILY,
    "g7": _G7_FAMILY,
    "g7e": _G7_FAMILY,
    "gr6": {"4xlarge": 1, "8xlarge": 1},
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
}


def gpus_of_type(instance_type: str | None) -> int | None:
    """The number of GPUs of a type such as ``g5.12xlarge``; None: it is not known."""
    family, _, size = (instance_type or "").partition(".")
    return _GPUS.get(family, {}).get(size)

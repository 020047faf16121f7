"""What NVIDIA's error numbers (Xid) say: whose fault they are, and what to do.

Source: NVIDIA's "Xid Catalog" (docs.nvidia.com/deploy/xid-errors, as of September 2026), its
columns "Resolution Bucket" and "Trigger Conditions". A number alone is no proof: most "usually"
mean what is said here. Numbers that are not listed get no words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

Fault = Literal["program", "machine", "driver", "none"]


class XidMeaning(Struct, frozen=True):
    """The words for a number: what happened, whose fault it usually is."""

    text: str
    fault: Fault


_MEANINGS: Final[Mapping[int, XidMeaning]] = {
    # RESTART_APP with CHECK_APP/CUDA, WORKFLOW_XID_13, WORKFLOW_XID_31: "user application faults".
    13: XidMeaning("a kernel did something illegal (an address, an instruction)", "program"),
    31: XidMeaning("a kernel or a copy used an address that is not its own", "program"),
    43: XidMeaning("a kernel was stopped after an error of the program", "program"),
    11: XidMeaning("the program sent the GPU commands that are not valid", "program"),
    25: XidMeaning("the program sent the GPU commands that are not valid", "program"),
    69: XidMeaning("a kernel did something illegal (a class error)", "program"),
    80: XidMeaning("the commands to the GPU arrived damaged", "program"),
    # "logged when the user application aborts": follows another error, a signal, a reset.
    45: XidMeaning("the driver removed the work of a program that had ended", "none"),
    # RESET_GPU, RESTART_BM, WORKFLOW_*: the hardware.
    32: XidMeaning("the commands to the GPU arrived damaged (PCIe)", "machine"),
    46: XidMeaning("the GPU did not answer", "machine"),
    48: XidMeaning("the GPU's memory has an error that cannot be corrected (ECC)", "machine"),
    62: XidMeaning("the GPU's own controller stopped", "machine"),
    64: XidMeaning("a bad row of the GPU's memory could not be replaced", "machine"),
    74: XidMeaning("an NVLink connection failed", "machine"),
    79: XidMeaning("the GPU has fallen off the bus", "machine"),
    94: XidMeaning("the GPU's memory failed under this program alone (contained)", "machine"),
    95: XidMeaning("the GPU's memory failed under all programs (uncontained)", "machine"),
    109: XidMeaning("the GPU did not switch to another program in time", "machine"),
    110: XidMeaning("the GPU's security unit reported a fault", "machine"),
    136: XidMeaning("an NVLink connection could not be made", "machine"),
    140: XidMeaning("the GPU's memory has an error that cannot be corrected (ECC)", "machine"),
    143: XidMeaning("the GPU could not be started", "machine"),
    **{
        number: XidMeaning("an NVLink connection failed", "machine")
        for number in (144, 145, 146, 147, 148, 149, 150)
    },
    # RESET_GPU with INVESTIGATE_SW: the firmware.
    119: XidMeaning("the GPU's firmware (GSP) did not answer", "driver"),
    120: XidMeaning("the GPU's firmware (GSP) failed", "driver"),
    8: XidMeaning("the GPU stopped its work", "driver"),
    # Notes, no cause of a failure.
    63: XidMeaning("a bad row of the GPU's memory will be replaced at the next reset", "none"),
    92: XidMeaning("the GPU's memory has many errors that were corrected", "none"),
    154: XidMeaning("the driver asks for a reset of the GPU or a restart", "none"),
}
# The most telling first.
_ORDER: Final[tuple[Fault, ...]] = ("machine", "driver", "program", "none")


def is_xid_error(number: int) -> bool:
    """Whether the number reports an error; some are notes, and nothing is known of others."""
    meaning = _MEANINGS.get(number)
    return meaning is None or meaning.fault != "none"


def worst_xid(numbers: Sequence[int]) -> int | None:
    """The number that says most about the cause of a failure; None without any. One of which
    nothing is known says more than a note.
    """
    return min(numbers, key=_telling_rank, default=None)


def _telling_rank(number: int) -> float:
    """The place of a number among the most telling ones."""
    meaning = _MEANINGS.get(number)
    if meaning is None:
        return _ORDER.index("none") - 0.5
    return _ORDER.index(meaning.fault)


def xid_sentence(
    numbers: Sequence[int], *, is_shared: bool, is_local: bool, is_own: bool = True
) -> str:
    """What the error means for a failed run; "" without an error. Without ``is_own``, the GPU
    may not be the run's, or not its alone.
    """
    number = worst_xid(numbers)
    if number is None:
        return ""
    meaning = _MEANINGS.get(number)
    if meaning is None:
        return f"The GPU's driver reported the error Xid {number} during the run."
    text = f"The GPU's driver reported Xid {number} during the run: {meaning.text}"
    whose = "" if is_own else " It is not known which programs used this GPU."
    if meaning.fault == "program":
        return f"{text}. {_program_error_text(is_shared=is_shared, is_own=is_own)}{whose}"
    if meaning.fault in ("machine", "driver"):
        remedy = "run it on another instance, and drain this one"
        if is_local:
            remedy = "reset the GPU (nvidia-smi --gpu-reset) or restart the machine"
        return f"{text}. That is the machine's fault, not the program's: {remedy}.{whose}"
    return f"{text}."


def _program_error_text(*, is_shared: bool, is_own: bool) -> str:
    """Whose error of a program it usually is."""
    if not is_own:
        return "Another program may have caused it."
    if is_shared:
        return "Another program used this GPU, too, and may have caused it."
    return "That is usually an error of the program itself: compute-sanitizer finds the place."

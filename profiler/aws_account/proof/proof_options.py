"""The options of ``task-profiler setup proof`` that say where and how its tasks run."""

from msgspec import Struct


class ProofOptions(Struct, frozen=True, kw_only=True):
    """Where the tasks run.

    None or empty: as the schedule, service or family has it. ``stack`` None: the one with the usual
    name, if it is deployed.
    """

    cluster: str
    stack: str | None = None
    like: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    task_role: str | None = None
    execution_role: str | None = None
    image: str | None = None

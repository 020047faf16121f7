"""The options of ``task-profiler setup proof`` that say where and how its programs run."""

from msgspec import Struct


class ProofOptions(Struct, frozen=True, kw_only=True):
    """Where the programs run: in tasks of a cluster, or in jobs of a queue of AWS Batch.

    None or empty: as the schedule, service, family or job definition has it. ``stack`` None: the
    one with the usual name, if it is deployed.
    """

    cluster: str | None = None
    queue: str | None = None
    stack: str | None = None
    like: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    task_role: str | None = None
    execution_role: str | None = None
    image: str | None = None

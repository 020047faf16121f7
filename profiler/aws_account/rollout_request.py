"""What a rollout is asked for."""

from msgspec import Struct


class RolloutRequest(Struct, frozen=True, kw_only=True):
    """The families to change, and the steps to take in addition to the plan.

    ``sizes_file`` gets the sizes that would be registered. ``job_definitions`` are patterns, and
    ``queues`` those in which job definitions are looked for, in place of families.
    """

    globs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    scheduled: bool = False
    job_definitions: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    register: bool = False
    sizes_file: str | None = None
    update_schedules: bool = False
    print_policy: bool = False
    attach_policy: bool = False
    yes: bool = False
    services: bool = False

    @property
    def is_of_jobs(self) -> bool:
        return bool(self.job_definitions or self.queues)

    @property
    def is_act(self) -> bool:
        """Whether more than a plan is asked for."""
        return self.register or self.sizes_file is not None

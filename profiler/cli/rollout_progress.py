"""A plan for the families of an account that is made and carried out in sight of a person."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.cli.interruption import hold_stop_signals
from profiler.cli.progress import progress_row
from profiler.core.errors import UsageError
from profiler.record.units import format_count
from profiler.task_definitions.permissions import RolePolicy

READING_ACCOUNT = "Reading task definitions, schedules and tasks …"


def check_update_schedules(request: RolloutRequest) -> None:
    """Raises UsageError for schedules to move without a revision to register."""
    if request.update_schedules and not request.register:
        raise UsageError(
            "--update-schedules needs --register: without it, the plan lists the pinned schedules."
        )


def carry_out_plans(
    rollout: Rollout, planned: Sequence[PlannedFamily]
) -> tuple[PlannedFamily, ...]:
    """Carry the plans out.

    Ctrl-C ends after the family that is in work: each new revision is printed.
    """
    with hold_stop_signals("It stops after the family that is in work.") as stop:

        def steps() -> Iterator[PlannedFamily]:
            for family_plan in planned:
                yield rollout.carry_out_plan(family_plan)
                stop.raise_if_stopped()

        try:
            done = collect_with_progress("Registering", steps(), len(planned))
        finally:
            rollout.put_back_unfit()
            rollout.name_left_alone()
        stop.raise_if_stopped()
    return done


def attach_policies(rollout: Rollout, policies: Iterable[RolePolicy]) -> None:
    """Attach the policies. Ctrl-C ends after the role that is in work."""
    with hold_stop_signals("It stops after the role that is in work.") as stop:
        for role_policy in policies:
            rollout.policies.attach(role_policy)
            stop.raise_if_stopped()


def collect_with_progress(
    title: str, steps: Iterable[PlannedFamily], count: int
) -> tuple[PlannedFamily, ...]:
    """Take the steps, and show how many of them are done."""
    done: list[PlannedFamily] = []
    with progress_row() as show:
        show(title, 0)
        for step in steps:
            done.append(step)
            show(title, len(done) / count)
    return tuple(done)


def rollout_exit_code(rollout: Rollout) -> int:
    """1 if a family failed, a glob selected none, or a schedule starts nothing."""
    return int(any(rollout.counts[problem] for problem in ("failed", "unmatched", "dead")))


def done_text(done: Counter[str], actions: Counter[str]) -> str:
    """What was done, such as "2 registered, 1 failed"; ``actions``: of the plan."""
    unchanged = actions["up to date"] + actions["no monitor"]
    parts = (
        (done["registered"], f"{done['registered']} registered"),
        (done["deregistered"], f"{done['deregistered']} deregistered"),
        (done["moved"], f"{format_count(done['moved'], 'schedule')} moved"),
        (done["skipped"], f"{format_count(done['skipped'], 'schedule')} skipped"),
        (done["attached"], f"{format_count(done['attached'], 'policy')} attached"),
        (done["left_roles"], f"{format_count(done['left_roles'], 'role')} left alone"),
        (unchanged, f"{unchanged} unchanged"),
        (actions["skipped"], f"{actions['skipped']} skipped"),
        (actions["refused"], f"{actions['refused']} refused"),
        (done["failed"], f"{done['failed']} failed"),
    )
    return ", ".join(text for count, text in parts if count)

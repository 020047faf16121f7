"""The four steps of a setup: what is done already, as AWS shows it, and the next command of
each.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.clusters_and_log_groups import container_insights_sentences
from profiler.aws_account.family_monitors import plan_monitors, read_monitors
from profiler.aws_account.forwarder_stack import (
    FORWARDER_STACK,
    ForwarderStack,
    change_obstacle,
    export_lines,
    known_other_forwarders,
    read_forwarder,
)
from profiler.aws_account.registered_definitions import TaskDefinitions
from profiler.aws_account.setup.monitor_image import ImageRepository
from profiler.aws_account.setup.template_parameters import why_stack_does_nothing
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.version import __version__
from profiler.record.units import format_count

_IN_LOG_GROUPS = (
    "Past runs are in the log groups of the tasks: history, recommend and report read them with "
    "--cluster NAME or --from logs:GLOB."
)


class SetupStep(Struct, frozen=True, kw_only=True, rename="camel"):
    """One step: ``is_done`` (None if unknown), the evidence, or why it is missing, and the words
    of its commands.
    """

    name: str
    is_done: bool | None
    text: str
    commands: tuple[tuple[str, ...], ...]


class _Found(Struct, frozen=True):
    """The evidence from AWS, whether a step is done by it, and the options that the step's commands
    need in addition. ``is_left``: it is done elsewhere, and by none of our commands.
    """

    text: str
    is_done: bool | None = False
    options: tuple[str, ...] = ()
    is_left: bool = False


class SetupStepReader(Struct):
    """Looks at clusters of one account and Region; none: all.

    ``on_progress`` gets the families read, and all.
    """

    open_client: OpenClient
    clusters: tuple[str, ...]
    aws_options: Mapping[str, str | None]
    on_progress: Callable[[int, int], object]
    now_ns: int
    hints: tuple[str, ...] = ()

    def read_steps(self) -> Iterator[SetupStep]:
        """Each step, in order. ``hints`` are then sentences about where past runs are."""
        yield self._read_step("image", self._find_image, ("setup", "image"))
        yield self._read_step("stack", self._find_stack, ("setup", "stack"))
        clusters = self.clusters
        problem = ""
        try:
            ecs = self.open_client("ecs")
            clusters = clusters or TaskDefinitions(ecs).clusters()
            if not clusters:
                problem = f"There is no ECS cluster in {ecs.meta.region_name}: check the Region."
        except TaskProfilerError as error:
            problem = str(error)
        if not problem:
            self.hints += tuple(container_insights_sentences(self.open_client, clusters))
        options = [("--cluster", cluster) for cluster in clusters or ("NAME",)]
        add = (
            "taskdef",
            "add-monitor",
            *chain(*options),
            "--scheduled",
            "--attach-policy",
            "--register",
        )

        def find_monitors() -> _Found:
            if problem:
                return _Found(problem, is_done=None)
            return self._find_monitors(clusters)

        yield self._read_step("monitors", find_monitors, add)
        checks = [("doctor", *option) for option in options]
        looks_later = _Found("It looks at every family when it runs.", is_done=None)
        yield self._read_step("check", lambda: looks_later, *checks)

    def _read_step(
        self, name: str, look: Callable[[], _Found], *commands: tuple[str, ...]
    ) -> SetupStep:
        try:
            found = look()
        except TaskProfilerError as error:
            found = _Found(str(error), is_done=None)
        aws: list[str] = []
        for option, value in self.aws_options.items():
            if value:
                aws += (f"--{option}", value)
        left = () if found.is_left else commands
        whole = tuple(("task-profiler", *words, *found.options, *aws) for words in left)
        return SetupStep(name=name, is_done=found.is_done, text=found.text, commands=whole)

    def _find_image(self) -> _Found:
        repository = ImageRepository(self.open_client("ecr"), MONITOR_REPOSITORY)
        uri = repository.read_uri()
        if not uri:
            text = f"There is no ECR repository {MONITOR_REPOSITORY} in {repository.region}."
            return _Found(text)
        if not repository.has_tag(__version__):
            text = f"The ECR repository {MONITOR_REPOSITORY} has no image {__version__}."
            return _Found(text)
        return _Found(f"{uri}:{__version__} is in ECR.", is_done=True)

    def _find_stack(self) -> _Found:
        state = read_forwarder(self.open_client, FORWARDER_STACK)
        others: tuple[ForwarderStack, ...] = ()
        if state.possible_action == "absent":
            others = known_other_forwarders(self.open_client, FORWARDER_STACK)
        state = min(others, key=lambda other: other.is_owned, default=state)
        self.hints = tuple(export_lines(state.parameters))
        if state.possible_action != "absent" and not self.hints:
            self.hints = (_IN_LOG_GROUPS,)
        found = _look_at_stack(state)
        if found.is_done or found.is_left or not state.is_owned:
            return found
        text = f"{found.text} It is {state.owner.what}: change it {state.owner.where}."
        return _Found(text, found.is_done, is_left=True)

    def _find_monitors(self, clusters: tuple[str, ...]) -> _Found:
        problems: list[str] = []
        rollout = plan_monitors(
            self.open_client,
            clusters,
            scheduled=True,
            now_ns=self.now_ns,
            on_problem=problems.append,
        )
        families = rollout.selected_families()
        counts: Counter[str] = Counter()
        owned: Counter[str] = Counter()
        for number, monitor in enumerate(read_monitors(rollout, families), 1):
            counts[monitor.state] += 1
            if monitor.planned.owner is not None:
                owned[monitor.planned.owner.service] += 1
            counts["targets"] += len(monitor.targets)
            counts["stale"] += len(monitor.stale_targets)
            counts["pinned"] += sum(
                target.pinned_revision is not None for target in monitor.stale_targets
            )
            self.on_progress(number, len(families))
        current = counts["targets"] - counts["stale"]
        text = (
            f"{current} of {counts['targets']} schedules and rules start a task with a current "
            "monitor."
        )
        if counts["pinned"]:
            verb = "is" if counts["pinned"] == 1 else "are"
            text += (
                f" {counts['pinned']} {verb} pinned to another revision, until --update-schedules "
                "moves them."
            )
        for service, count in owned.items():
            text += f" {service} registers {format_count(count, 'family')}: leave them to it."
        if counts["impossible"]:
            text += f" add-monitor refuses {format_count(counts['impossible'], 'family')}."
        if counts["unknown"]:
            text += f" {format_count(counts['unknown'], 'family')} could not be read."
        if counts["stale"]:
            is_done = False
        elif counts["unknown"]:
            is_done = None
        else:
            is_done = True
        options = ("--update-schedules",) if counts["pinned"] else ()
        return _Found(" ".join([text, *problems]), is_done, options)


def _look_at_stack(state: ForwarderStack) -> _Found:
    gap, options = why_stack_does_nothing(state.parameters)
    own_name = state.name_options
    if state.is_foreign:  # the forwarder needs another name
        own_name = ("--name", f"{FORWARDER_STACK}-forwarder")
    options = (*own_name, *options)
    why_not = change_obstacle(state)
    if state.possible_action == "absent":
        advice = "With a search cluster, add --elasticsearch URL --all-log-groups."
        return _Found(f"There is no stack {FORWARDER_STACK}. {advice}", options=options)
    if why_not:
        is_done = None if state.possible_action == "in progress" else False
        return _Found(why_not, is_done, options, is_left=state.is_owned)
    if state.version not in (None, __version__):
        text = f"The stack {state.name} has the version {state.version}, not {__version__}."
        return _Found(text, options=options)
    if gap:
        return _Found(f"The stack {state.name} {gap}.", options=options)
    return _Found(f"The stack {state.name} is deployed ({state.status}).", is_done=True)

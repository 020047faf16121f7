"""The attempts of a container that ECS restarts are one run."""

from msgspec.structs import replace

from profiler.monitor.followed_container import FollowedContainers
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from tests.cases import each_case
from tests.fakes import START_NS, seconds

FIRST = ContainerMetadata(name="batch", docker_id="a", known_status="RUNNING", started_ns=START_NS)
LATER_NS = START_NS + seconds(90)


def joined(followed: FollowedContainers, *containers: ContainerMetadata) -> ContainerMetadata:
    (container,) = followed.add_task(TaskMetadata(containers=containers)).containers
    return container


def facts(container: ContainerMetadata) -> tuple[int, int | None, int | None]:
    return container.restart_count, container.started_ns, container.attempt_started_ns


def test_a_container_that_was_never_restarted_is_as_it_was() -> None:
    followed = FollowedContainers()
    for container in (FIRST, replace(FIRST, known_status="STOPPED", exit_code=0)):
        assert joined(followed, container) == replace(
            container, first_docker_id="a", attempt_started_ns=START_NS
        )


RESTARTED = (
    replace(FIRST, restart_count=1, started_ns=LATER_NS),
    replace(FIRST, started_ns=LATER_NS),
    replace(FIRST, docker_id="b", started_ns=LATER_NS),
    replace(FIRST, docker_id="b", restart_count=1, started_ns=LATER_NS),
)
UNKNOWN = replace(FIRST, started_ns=None, docker_id=None)
CREATED = replace(FIRST, docker_id="b", started_ns=None, known_status="CREATED")


@each_case(
    ("seen", "expected"),
    [
        *(((FIRST, again, again, again), (1, START_NS, LATER_NS)) for again in RESTARTED),
        # A count without a new start counts.
        ((FIRST, replace(FIRST, restart_count=3)), (3, START_NS, START_NS)),
        # The agent's count may come before Docker's new start.
        ((FIRST, replace(FIRST, restart_count=1), RESTARTED[0]), (1, START_NS, LATER_NS)),
        # A new container that has not started yet has its start later.
        ((FIRST, CREATED), (1, START_NS, None)),
        ((FIRST, CREATED, replace(CREATED, started_ns=LATER_NS)), (1, START_NS, LATER_NS)),
        # A start that becomes more exact is no restart.
        (
            (UNKNOWN, FIRST, replace(FIRST, started_ns=START_NS + seconds(0.4))),
            (0, START_NS, START_NS),
        ),
    ],
)
def test_a_restart_shows_in_the_count_the_start_or_the_id(
    seen: tuple[ContainerMetadata, ...], expected: tuple[int, int, int | None]
) -> None:
    followed = FollowedContainers()
    assert [facts(joined(followed, container)) for container in seen][-1] == expected


def test_of_two_containers_with_one_name_the_last_one_counts() -> None:
    followed = FollowedContainers()
    joined(followed, FIRST)
    ended = replace(FIRST, known_status="STOPPED", exit_code=1)
    again = replace(FIRST, docker_id="b", started_ns=LATER_NS)
    for order in ((ended, again), (again, ended)):
        found = joined(followed, *order)
        assert found.docker_id == "b"
        assert found.exit_code is None
        assert facts(found) == (1, START_NS, LATER_NS)


def test_containers_keep_their_order_and_restarts_of_their_own() -> None:
    followed = FollowedContainers()
    side = ContainerMetadata(name="side", docker_id="s", started_ns=START_NS)
    followed.add_task(TaskMetadata(containers=(side, FIRST)))
    task = followed.add_task(
        TaskMetadata(containers=(side, replace(FIRST, docker_id="b", started_ns=LATER_NS)))
    )
    assert [(one.name, one.restart_count) for one in task.containers] == [("side", 0), ("batch", 1)]

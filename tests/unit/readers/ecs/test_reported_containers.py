import pytest
from msgspec.structs import replace

from profiler.readers.ecs.reported_containers import select_batch
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata

OWN = ContainerMetadata(name="watcher", docker_id="own")
BATCH = ContainerMetadata(name="batch", docker_id="b", type="NORMAL")
OTHER = ContainerMetadata(name="proxy", docker_id="p", type="NORMAL")
PAUSE = ContainerMetadata(name="~internal~ecs~pause", docker_id="x", type="CNI_PAUSE")


def task(*containers: ContainerMetadata) -> TaskMetadata:
    return TaskMetadata(containers=containers)


def test_the_only_other_container_is_the_batch() -> None:
    choice = select_batch(task(PAUSE, OWN, BATCH), requested=None, own=OWN)
    assert (choice.names, choice.problem) == (("batch",), None)


@pytest.mark.parametrize(
    "injected",
    [
        ContainerMetadata(name="aws-guardduty-agent-x1y2", docker_id="g"),
        ContainerMetadata(name="ecs-service-connect-abc", docker_id="s"),
        ContainerMetadata(name="~internal~ecs~emptyvolume", docker_id="v"),
        ContainerMetadata(name="anything", docker_id="m", type="MANAGED_DAEMON"),
    ],
)
def test_containers_injected_by_aws_are_no_candidates(injected: ContainerMetadata) -> None:
    assert select_batch(task(injected, BATCH, OWN), requested=None, own=OWN).names == ("batch",)


@pytest.mark.parametrize(
    "second",
    [
        ContainerMetadata(name="task-monitor", docker_id="2", image="example/any:1"),
        ContainerMetadata(
            name="monitor-2", docker_id="2", image="111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:1"
        ),
        ContainerMetadata(name="monitor-2", docker_id="2", image="task-profiler@sha256:0123"),
    ],
)
def test_a_second_monitor_is_not_a_candidate_if_there_is_a_batch(second: ContainerMetadata) -> None:
    assert select_batch(task(second, BATCH, OWN), requested=None, own=OWN).names == ("batch",)


def test_a_batch_in_the_monitors_own_image_is_the_batch() -> None:
    """The image of a wrapped batch (``task-profiler run -- CMD``) may be based on the monitor's."""
    wrapped = ContainerMetadata(name="batch", docker_id="b", image="example/task-profiler:1")
    assert select_batch(task(wrapped, OWN), requested=None, own=OWN).names == ("batch",)


@pytest.mark.parametrize(
    "router",
    [
        ContainerMetadata(name="log_router", docker_id="r", image="any"),
        ContainerMetadata(
            name="logs", docker_id="r", image="public.ecr.aws/aws-observability/aws-for-fluent-bit:stable"
        ),
    ],
)
def test_a_firelens_router_is_no_candidate_where_firelens_is_used(router: ContainerMetadata) -> None:
    batch = ContainerMetadata(name="batch", docker_id="b", log_driver="awsfirelens")
    assert select_batch(task(router, batch, OWN), requested=None, own=OWN).names == ("batch",)
    awslogs = replace(batch, log_driver="awslogs")
    assert select_batch(task(router, awslogs, OWN), requested=None, own=OWN).problem is not None
    without_driver = replace(batch, log_driver=None)  # by version 3 of the endpoint
    assert select_batch(task(router, without_driver, OWN), requested=None, own=OWN).names == ("batch",)
    assert select_batch(task(router, OWN), requested=None, own=OWN).names == (router.name,)


def test_several_candidates_are_all_named_and_all_reported_on() -> None:
    choice = select_batch(task(BATCH, OTHER, OWN), requested=None, own=OWN)
    assert choice.names == ("batch", "proxy")
    assert choice.problem is not None
    assert "batch, proxy" in choice.problem
    assert "TASK_PROFILER_CONTAINER" in choice.problem


def test_the_wanted_container_wins() -> None:
    choice = select_batch(task(BATCH, OTHER, OWN), requested="proxy", own=OWN)
    assert (choice.names, choice.problem) == (("proxy",), None)


def test_a_wanted_container_that_is_not_there_is_named_with_those_that_are() -> None:
    choice = select_batch(task(BATCH, OWN), requested="bach", own=OWN)
    assert choice.names == ("bach",)
    assert choice.problem is not None
    assert "'bach'" in choice.problem
    assert "batch, watcher" in choice.problem


def test_a_task_of_the_monitor_alone_has_no_batch() -> None:
    choice = select_batch(task(PAUSE, OWN), requested=None, own=OWN)
    assert choice.names == ()
    assert choice.problem is not None


def test_a_monitor_that_cannot_find_itself_goes_by_its_usual_name() -> None:
    usual = ContainerMetadata(name="task-monitor", docker_id="own")
    assert select_batch(task(BATCH, usual), requested=None, own=None).names == ("batch",)


def test_the_own_container_is_known_by_its_id_then_by_its_name() -> None:
    namesake = ContainerMetadata(name="watcher", docker_id="other")
    assert select_batch(task(namesake, OWN), requested=None, own=OWN).names == ("watcher",)
    without_id = ContainerMetadata(name="watcher")
    assert select_batch(task(BATCH, without_id), requested=None, own=OWN).names == ("batch",)

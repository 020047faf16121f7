import pytest
from msgspec.structs import replace

from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata, select_batch

OWN = ContainerMetadata(name="watcher", docker_id="own")
BATCH = ContainerMetadata(name="batch", docker_id="b", type="NORMAL")
OTHER = ContainerMetadata(name="proxy", docker_id="p", type="NORMAL")
PAUSE = ContainerMetadata(name="~internal~ecs~pause", docker_id="x", type="CNI_PAUSE")


def task(*containers: ContainerMetadata) -> TaskMetadata:
    return TaskMetadata(containers=containers)


@pytest.mark.parametrize(
    ("containers", "requested", "own", "names", "said"),
    [
        ((PAUSE, OWN, BATCH), None, OWN, ("batch",), None),
        ((BATCH, OTHER, OWN), None, OWN, ("batch", "proxy"), ["batch, proxy", "TASK_PROFILER_CONTAINER"]),
        ((BATCH, OTHER, OWN), "proxy", OWN, ("proxy",), None),
        ((BATCH, OWN), "bach", OWN, ("bach",), ["'bach'", "batch, watcher"]),
        ((PAUSE, OWN), None, OWN, (), []),
        # The monitor goes by its id, then by its name, and by its usual name if it cannot find itself.
        ((replace(BATCH, name="watcher"), OWN), None, OWN, ("watcher",), None),
        ((BATCH, replace(OWN, docker_id=None)), None, OWN, ("batch",), None),
        ((BATCH, replace(OWN, name="task-monitor")), None, None, ("batch",), None),
    ],
)
def test_the_batch_is_the_wanted_container_or_the_only_other_one(
    containers: tuple[ContainerMetadata, ...],
    requested: str | None,
    own: ContainerMetadata | None,
    names: tuple[str, ...],
    said: list[str] | None,
) -> None:
    choice = select_batch(task(*containers), requested=requested, own=own)
    assert (choice.names, choice.problem is None) == (names, said is None)
    assert all(text in (choice.problem or "") for text in said or ())


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

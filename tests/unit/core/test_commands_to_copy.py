import pytest

from profiler.core.commands_to_copy import (
    NameArgument,
    aws_command_line,
    command_line,
    container_insights_command,
    repeated_option,
)


def test_a_command_without_a_place_is_its_words() -> None:
    assert command_line("show", "0123") == "task-profiler show 0123"


def test_a_command_names_its_source_and_its_region() -> None:
    line = command_line("recommend", source="https://search:9200", region="eu-west-1")
    assert line == "task-profiler recommend --from https://search:9200 --region eu-west-1"


def test_a_log_group_is_preferred_to_another_source() -> None:
    line = command_line("show", log_group="/ecs/jobs", source="https://search:9200")
    assert line == "task-profiler show --from logs:/ecs/jobs"


def test_a_command_has_the_options_for_aws_that_this_one_was_given() -> None:
    """Its own Region, if it names one."""
    with repeated_option("--region", "eu-west-1"), repeated_option("--profile", "prod"):
        assert command_line("show", "0123") == (
            "task-profiler show 0123 --region eu-west-1 --profile prod"
        )
        assert aws_command_line("logs", "tail", region="us-east-1") == (
            "aws logs tail --region us-east-1 --profile prod"
        )
        assert command_line("show", "0123", for_others=True) == "task-profiler show 0123"
    assert command_line("show", "0123") == "task-profiler show 0123"


def test_a_word_for_another_program_is_quoted() -> None:
    assert command_line("show", "a; rm -rf ~") == "task-profiler show 'a; rm -rf ~'"


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("nightly", "taskdef resize nightly --register --region eu-west-1"),
        ("night-ly", "taskdef resize night-ly --register --region eu-west-1"),
        ("-x", "taskdef resize --register --region eu-west-1 -- -x"),
        ("--register", "taskdef resize --register --region eu-west-1 -- --register"),
        ("--", "taskdef resize --register --region eu-west-1 -- --"),
    ],
)
def test_a_name_that_looks_like_an_option_comes_behind_all_options(family: str, line: str) -> None:
    words = ("taskdef", "resize", NameArgument(family), "--register")
    assert command_line(*words, region="eu-west-1") == f"task-profiler {line}"


def test_a_command_is_one_line() -> None:
    assert "\n" not in command_line("show", "a\nb")


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ("jobs", "ecs update-cluster-settings --cluster jobs --settings name"),
        (
            "AWSBatch-spot-large-0a1b2c3d-1111-2222-3333-444455556666",
            "batch update-compute-environment --compute-environment spot-large --ecs-settings ",
        ),
        (
            "spot_Batch_0a1b2c3d-1111-2222-3333-444455556666",
            "batch update-compute-environment --compute-environment spot --ecs-settings ",
        ),
        # As AWS Batch never names one.
        ("AWSBatch-", "ecs update-cluster-settings --cluster AWSBatch- --settings name"),
    ],
)
def test_container_insights_of_a_compute_environment_is_turned_on_by_batch(
    cluster: str, words: str
) -> None:
    command = container_insights_command(cluster)
    assert command.startswith(f"aws {words}")
    assert command.endswith(("=containerInsights,value=enabled", " containerInsights=ENABLED"))

import pytest
from msgspec.structs import asdict, replace

from profiler.core.errors import UsageError
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.bounded_json_line import MAX_WARNING_LENGTH
from profiler.record.report_text_and_emf import EMF_METRICS
from profiler.settings import (
    DEFAULT_EMF_METRICS,
    SETTINGS,
    problems_message,
    read_settings,
)
from profiler.sizing.prices import PriceOverrides
from tests.batch_jobs import job_id

V4 = {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/abc"}


def test_defaults_also_for_empty_values_and_v4_is_preferred_to_v3() -> None:
    v3 = {"ECS_CONTAINER_METADATA_URI": "http://169.254.170.2/v3/abc"}
    empty = {"TASK_PROFILER_CONTAINER": "", "TASK_PROFILER_INTERVAL_SECONDS": " "}
    settings = read_settings({**v3, **V4, **empty})
    assert settings.endpoint_address == "http://169.254.170.2/v4/abc"
    assert settings.endpoint_version == 4
    assert settings.task.container is None
    assert settings.task.checkpoint_seconds == 60.0
    assert settings.interval_seconds == 1.0
    assert settings.stop_seconds == 25.0
    assert settings.problems == ()
    assert read_settings(v3).endpoint_version == 3


def test_every_row_is_a_setting_with_its_default() -> None:
    settings = flat(V4)
    rows = {row.name: row.default for row in SETTINGS if not row.name.startswith("price_")}
    assert {name: settings[name] for name in rows} == rows


def test_the_monitor_of_an_instance_needs_no_task() -> None:
    """The monitor of an instance needs no task prints no checkpoints and serves no metrics."""
    names = {
        "SCOPE": "Instance",
        "FAMILIES": "etl, night-*",
        "PROCESSES": "on",
        "PROMETHEUS_PORT": "9100",
    }
    settings = read_settings({f"TASK_PROFILER_{name}": value for name, value in names.items()})
    assert settings.endpoint_address == ""
    assert settings.endpoint_version == 4
    assert settings.task.checkpoint_seconds == 0
    assert settings.scope == "instance"
    assert settings.families == ("etl", "night-*")
    assert settings.processes == "on"
    assert settings.prometheus_port == 9100
    assert settings.problems == (
        "TASK_PROFILER_PROMETHEUS_PORT has no effect with TASK_PROFILER_SCOPE=instance",
    )


@pytest.mark.parametrize(("name", "value"), [("FAMILIES", "etl"), ("PROCESSES", "on")])
def test_a_setting_of_the_instances_monitor_is_named_in_a_task(name: str, value: str) -> None:
    environment = {**V4, f"TASK_PROFILER_{name}": value}
    (problem,) = read_settings(environment).problems
    assert problem == f"TASK_PROFILER_{name} has no effect with TASK_PROFILER_SCOPE=task"
    assert read_settings({**environment, "TASK_PROFILER_SCOPE": "instance"}).problems == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("INTERVAL", "INTERVAL_SECONDS"),
        ("TAG", "TAGS"),
        ("GPUS", "GPU"),
        ("STOP_SECOND", "STOP_SECONDS"),
        ("price_hour", "PRICE_HOUR"),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_named(name: str, meant: str) -> None:
    """As a mistake in a task definition, of which nothing else would tell."""
    settings = read_settings({**V4, f"TASK_PROFILER_{name}": "5"})
    assert settings.problems == (
        f"TASK_PROFILER_{name} is no setting, but TASK_PROFILER_{meant} is one",
    )
    assert settings.interval_seconds == 1


def test_a_variable_of_others_is_not_named() -> None:
    others = ("FROM", "HISTORY", "VERSION", "TEAM", "COMMAND")
    environment = {**V4, **{f"TASK_PROFILER_{name}": "x" for name in others}, "PROFILER_TAG": "x"}
    assert read_settings(environment).problems == ()


def test_a_checkpoint_period_that_is_set_counts_for_an_instance() -> None:
    names = {"TASK_PROFILER_SCOPE": "instance", "TASK_PROFILER_CHECKPOINT_SECONDS": "60"}
    assert read_settings(names).task.checkpoint_seconds == 60


ALL = {
    "CONTAINER": ("batch", "batch"),
    "INTERVAL_SECONDS": ("0.02", 0.02),
    "CHECKPOINT_SECONDS": ("0", 0),
    "LOG_GROUP": ("/ecs/x", "/ecs/x"),
    "LOG_STREAM": ("ecs/batch/1", "ecs/batch/1"),
    "REPORT_STREAM": ("Monitor", "monitor"),
    "STOP_SECONDS": ("100", 100),
    "GPU": ("ON", "on"),
    "NEURON": ("off", "off"),
    "GPU_UUIDS": ("GPU-1, GPU-2", ("GPU-1", "GPU-2")),
    "PROCESS_ARGUMENTS": ("Redacted", "redacted"),
    "EMF": ("live", "live"),
    "EMF_METRICS": ("durationMs, cpuSeconds", ("durationMs", "cpuSeconds")),
    "PROMETHEUS_PORT": ("8000", 8000),
    "TAGS": ("True", True),
}
PRICES = {
    "PRICE_VCPU_HOUR": "0.04",
    "PRICE_GB_HOUR": "0.004",
    "PRICE_STORAGE_GB_HOUR": "0",
    "PRICE_HOUR": "0.5",
    "PRICE_INSTANCES": "m5.large=0.096, c5.large = 0.085",
}


def flat(environment: dict[str, str]) -> dict[str, object]:
    """All settings by their names."""
    settings = read_settings(environment)
    others = {**asdict(settings.task), **asdict(settings.accelerators)}
    return {**asdict(settings), **others, "task": None, "accelerators": None}


def test_all_settings() -> None:
    texts = {**PRICES, **{name: text for name, (text, _) in ALL.items()}}
    environment = {
        **V4,
        "AWS_REGION": "eu-west-1",
        **{f"TASK_PROFILER_{name}": text for name, text in texts.items()},
    }
    prices = PriceOverrides(
        vcpu_hour_usd=0.04,
        gb_hour_usd=0.004,
        storage_gb_hour_usd=0,
        hour_usd=0.5,
        instances_usd=(("m5.large", 0.096), ("c5.large", 0.085)),
    )
    given = {name.lower(): value for name, (_, value) in ALL.items()}
    assert flat(environment) == {**flat(V4), **given, "prices": prices, "aws_region": "eu-west-1"}


@pytest.mark.parametrize("environment", [{}, {"ECS_CONTAINER_METADATA_URI_V4": " "}])
def test_outside_of_ecs_a_sentence_says_what_to_do(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"task-profiler run -- CMD"):
        read_settings(environment)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("stuck_minutes", {"": 30, "0": 0, "0.02": 0.02, "1440": 1440}),
        ("expected_seconds", {"": None, "0.5": 0.5, "5400": 5400, "100000": 100_000}),
        ("series_points", {"0": 0, "240": 240}),
        (
            "emf_metrics",
            {
                "cpuSeconds": ("cpuSeconds",),
                "failed, durationMs,failed,": ("failed", "durationMs"),
                ",": DEFAULT_EMF_METRICS,
                ", ".join(EMF_METRICS): tuple(EMF_METRICS),
            },
        ),
    ],
)
def test_good_values(name: str, values: dict[str, object]) -> None:
    for value, expected in values.items():
        settings = read_settings({**V4, f"TASK_PROFILER_{name.upper()}": value})
        assert getattr(settings.task, name) == expected, value
        assert settings.problems == (), value


@pytest.mark.parametrize(
    ("name", "values", "default", "sentence"),
    [
        ("INTERVAL_SECONDS", ("0.001",), 1, "is not a number of seconds from 0.02 to 86400"),
        ("STOP_SECONDS", ("nan", "0", "100000"), 25, "is not a number of seconds from 1 to 86400"),
        ("PROMETHEUS_PORT", ("99999",), None, "is not a port number from 1 to 65535"),
        ("REPORT_STREAM", ("own",), "batch", "is not batch or monitor"),
        ("STUCK_MINUTES", ("-1", "nan", "30 min"), 30, "is not a number of minutes from 0 to 1440"),
        (
            "EXPECTED_SECONDS",
            ("-1", "1e9", "nan"),
            None,
            "is not a number of seconds from 0.01 to 31536000",
        ),
        ("SERIES_POINTS", ("241", "1.5"), 60, "is not a whole number from 0 to 240"),
    ],
)
def test_a_bad_value_is_named_with_what_is_expected(
    name: str, values: tuple[str, ...], default: object, sentence: str
) -> None:
    for value in values:
        settings = read_settings({**V4, f"TASK_PROFILER_{name}": value})
        has_it = settings.task if hasattr(settings.task, name.lower()) else settings
        assert getattr(has_it, name.lower()) == default
        assert settings.problems == (f"TASK_PROFILER_{name}={value!r} {sentence}",)


def test_an_unknown_metric_is_named_with_those_there_are_and_the_defaults_are_used() -> None:
    settings = read_settings(
        {**V4, "TASK_PROFILER_EMF_METRICS": "durationMs,cpuUsage,maxMemoryUsedMb"}
    )
    assert settings.task.emf_metrics == DEFAULT_EMF_METRICS
    (problem,) = settings.problems
    assert problem.startswith(
        "TASK_PROFILER_EMF_METRICS holds the unknown 'cpuUsage, maxMemoryUsedMb' (known: "
    )
    assert all(name in problem for name in EMF_METRICS)


def test_the_message_about_all_invalid_values_is_complete_in_the_record() -> None:
    words = (
        "INTERVAL_SECONDS CHECKPOINT_SECONDS STOP_SECONDS SERIES_POINTS PROCESS_ARGUMENTS EMF "
        "EMF_METRICS PROMETHEUS_PORT STUCK_MINUTES EXPECTED_SECONDS GPU NEURON GPU_UUIDS"
    )
    bad = {f"TASK_PROFILER_{name}": "nonsense " * 20 for name in (*words.split(), *PRICES)}
    settings = read_settings({**V4, **bad})
    assert replace(
        settings, problems=(), task=replace(settings.task, prices=None)
    ) == read_settings(V4)
    message = problems_message(settings.problems)
    assert [name for name in bad if name not in message] == []
    assert "\n" not in message
    assert len(message) <= MAX_WARNING_LENGTH


def test_a_job_of_aws_batch_is_that_of_a_tasks_monitor_and_not_of_an_instances() -> None:
    variables = {**V4, "AWS_BATCH_JOB_ID": job_id(1), "AWS_BATCH_JOB_ATTEMPT": "2"}
    assert read_settings(variables).task.batch_job == BatchJob(job_id=job_id(1), attempt=2)
    instance = {**variables, "TASK_PROFILER_SCOPE": "instance"}
    assert read_settings(instance).task.batch_job is NO_JOB

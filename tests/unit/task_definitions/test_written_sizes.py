"""The sizes in files that hold code are found where they are plain numbers, and nowhere else."""

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.written_sizes import WrittenSize, is_only_read, written_sizes

TERRAFORM = """\
# resource "aws_ecs_task_definition" "comment" {
/* resource "aws_ecs_task_definition" "block" {
  family = "block"
*/
resource "aws_ecs_task_definition" "nightly" {
  family = "nightly" # one
  # cpu  = 4096
  cpu    = 1024 // two
  /*
  memory = 8192
  */
  container_definitions = <<-EOT
    cpu = 3
    memory = 4 }
  EOT
  memory = "2048"
}
resource "aws_ecs_task_definition" "weekly" {
  family = "weekly"
  cpu    = var.sizes["weekly"].cpu
  memory = "${var.memory}"
  volume { name = "}" }
}
"""
EACH = """\
resource "aws_ecs_task_definition" "jobs" {
  for_each = local.sizes
  family   = "jobs"
  cpu      = 1024
}
resource "aws_ecs_task_definition" "named" {
  family = "${var.stage}-etl"
  cpu    = 1024
}
resource "aws_ecs_task_definition" "local" {
  family = local.family
}
"""
SIZED = {"cpu": "256", "memory": "512"}
TEMPLATE = """\
Resources:
  # Cpu: 4096
  Nightly:
    Type: AWS::ECS::TaskDefinition
    Properties:
      Family: nightly
      Memory: !Ref Memory
      Cpu: '1024'
      ContainerDefinitions: [{Name: batch, Cpu: 10}]
"""
IN_JSON = """
{"Resources": {"A": {
  "Type": "AWS::ECS::TaskDefinition",
  "Properties": {"ContainerDefinitions": []}
}}}
"""


def hints(found: WrittenSize) -> list[str]:
    return list(found.edit_hints(SIZED))


def test_a_job_definition_in_terraform_is_told_how_it_gets_sizes() -> None:
    batch = b'resource "aws_batch_job_definition" "etl" {\n  name = "etl"\n}\n'
    with pytest.raises(TaskProfilerError, match="resize --job-definition NAME --write-sizes FILE"):
        written_sizes(batch, "jobs.tf")
    with pytest.raises(TaskProfilerError) as other:
        written_sizes(b'# "aws_batch_job_definition"\n', "jobs.tf")
    assert "job-definition" not in str(other.value)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_terraforms_plain_numbers_are_found_outside_comments_and_heredocs(newline: str) -> None:
    data = TERRAFORM.replace("\n", newline).encode()
    nightly, weekly = written_sizes(data, "jobs.tf")
    assert nightly.definition == {"family": "nightly", "cpu": "1024", "memory": "2048"}
    assert hints(nightly) == [
        "jobs.tf:8: cpu is 1024, set 256.",
        "jobs.tf:16: memory is 2048, set 512.",
    ]
    assert weekly.definition == {"family": "weekly"}
    assert hints(weekly) == []
    assert nightly.unnamed is weekly.unnamed is None


def test_a_computed_family_is_no_familys_definition() -> None:
    found = written_sizes(EACH.encode(), "jobs.tf")
    assert [one.unnamed for one in found] == [
        f"jobs.tf:{line}: the family of aws_ecs_task_definition.{name} is computed."
        for line, name in ((1, "jobs"), (6, "named"), (10, "local"))
    ]


@pytest.mark.parametrize("text", ["", "# nothing", "/* never closed", '"', "<<EOT\n", "\xff"])
def test_a_file_without_a_definition_is_named(text: str) -> None:
    with pytest.raises(TaskProfilerError, match=r"^jobs\.tf "):
        written_sizes(text.encode("latin-1"), "jobs.tf")


def test_a_templates_plain_values_are_found() -> None:
    data = TEMPLATE.encode()
    assert is_only_read(data, "jobs.yaml")
    (nightly,) = written_sizes(data, "jobs.yaml")
    assert hints(nightly) == ["jobs.yaml:8: cpu is 1024, set 256."]


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ('{"family": "a", "containerDefinitions": [{"name": "b"}]}', False),
        ('{"taskDefinition": {"containerDefinitions": [{"name": "b"}]}}', False),
        ("family: a\ncontainerDefinitions: [{name: b}]\n", True),
        (IN_JSON, True),
    ],
)
def test_only_a_definitions_json_is_written(text: str, *, is_read: bool) -> None:
    assert is_only_read(text.encode(), "jobs") is is_read

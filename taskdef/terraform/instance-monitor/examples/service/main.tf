# The monitor on each EC2 instance of a cluster.
module "monitor" {
  source     = "github.com/task-profiler/task-profiler//taskdef/terraform/instance-monitor"
  image      = "111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0"
  log_group  = "/ecs/instance-monitor"
  log_groups = ["/ecs/jobs"]
}

resource "aws_cloudwatch_log_group" "monitor" {
  name = "/ecs/instance-monitor"
}

resource "aws_iam_role" "monitor" {
  name               = "task-profiler-instance-monitor"
  assume_role_policy = module.monitor.assume_role_policy
}

resource "aws_iam_role_policy" "monitor" {
  role   = aws_iam_role.monitor.name
  policy = module.monitor.policy
}

resource "aws_ecs_task_definition" "monitor" {
  family                   = "task-profiler-instance-monitor"
  task_role_arn            = aws_iam_role.monitor.arn
  requires_compatibilities = ["EC2"]
  network_mode             = "host"
  container_definitions    = module.monitor.container_definitions

  dynamic "volume" {
    for_each = module.monitor.volumes
    content {
      name      = volume.key
      host_path = volume.value
    }
  }
}

resource "aws_ecs_service" "monitor" {
  name                = "task-profiler-instance-monitor"
  cluster             = "jobs"
  task_definition     = aws_ecs_task_definition.monitor.arn
  scheduling_strategy = "DAEMON"
  launch_type         = "EC2"
}

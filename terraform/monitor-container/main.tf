# The monitor's container for aws_ecs_task_definition. The module creates no resources.
terraform {
  required_version = ">= 1.5"
}

locals {
  options = merge(
    { "awslogs-group" = var.log_group, "awslogs-stream-prefix" = var.stream_prefix },
    var.region == null ? {} : { "awslogs-region" = var.region },
  )
  settings    = merge({ "TASK_PROFILER_CONTAINER" = var.batch_container }, var.settings)
  environment = [for name, value in local.settings : { name = name, value = value }]
  container = {
    name                   = "task-monitor"
    image                  = var.image
    command                = ["monitor"]
    essential              = false
    dependsOn              = [{ containerName = var.batch_container, condition = "START" }]
    stopTimeout            = 120
    memoryReservation      = 32
    memory                 = 128
    user                   = "65532"
    readonlyRootFilesystem = true
    environment            = local.environment
    logConfiguration       = { logDriver = "awslogs", options = local.options }
  }
}

# The monitors' containers for aws_ecs_task_definition, one for each task. The module creates no resources.
terraform {
  required_version = ">= 1.5"
}

locals {
  tasks = {
    for key, task in var.tasks : key => {
      batch  = coalesce(task.batch_container, var.batch_container, key)
      image  = coalesce(task.image, var.image)
      prefix = coalesce(task.stream_prefix, var.stream_prefix)
      # try: coalesce() fails without any region.
      region   = try(coalesce(task.region, var.region), null)
      group    = task.log_group
      stream   = coalesce(task.report_stream, var.report_stream)
      settings = merge(var.settings, task.settings)
    }
  }
  containers = {
    for key, task in local.tasks : key => {
      name                   = "task-monitor"
      image                  = task.image
      command                = ["monitor"]
      essential              = false
      dependsOn              = [{ containerName = task.batch, condition = "START" }]
      stopTimeout            = 120
      memoryReservation      = 32
      memory                 = 128
      user                   = "65532"
      readonlyRootFilesystem = true
      environment = [
        for name, value in merge(
          { TASK_PROFILER_CONTAINER = task.batch },
          task.stream == "batch" ? {} : { TASK_PROFILER_REPORT_STREAM = task.stream },
          task.settings,
        ) : { name = name, value = value }
      ]
      logConfiguration = {
        logDriver = "awslogs"
        options = merge(
          { awslogs-group = task.group, awslogs-stream-prefix = task.prefix },
          task.region == null ? {} : { awslogs-region = task.region },
        )
      }
    }
  }
}

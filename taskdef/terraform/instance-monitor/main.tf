# The definition of taskdef/instance-monitor.json, and the policy of its task role. The module creates no resources.
terraform {
  required_version = ">= 1.5"
}

locals {
  # The folders of the instance by the name of their volume.
  volumes = { docker = "/var/run", cgroup = "/sys/fs/cgroup", state = "/var/lib/task-profiler" }
  environment = merge(
    { TASK_PROFILER_SCOPE = "instance", NVIDIA_VISIBLE_DEVICES = "all", NVIDIA_DRIVER_CAPABILITIES = "utility" },
    var.settings,
  )
  container = {
    name                   = "task-monitor"
    image                  = var.image
    command                = ["monitor"]
    essential              = true
    stopTimeout            = 120
    cpu                    = 64
    memoryReservation      = 48
    memory                 = var.memory
    user                   = "0"
    readonlyRootFilesystem = true
    linuxParameters        = { capabilities = { drop = ["ALL"] } }
    environment            = [for name, value in local.environment : { name = name, value = value }]
    mountPoints = [
      for name, path in local.volumes : { sourceVolume = name, containerPath = path, readOnly = name != "state" }
    ]
    logConfiguration = {
      logDriver = "awslogs"
      options = merge(
        { awslogs-group = var.log_group, awslogs-stream-prefix = "instance" },
        var.region == null ? {} : { awslogs-region = var.region },
      )
    }
  }
}

output "container_definitions" {
  description = "By task: an item for jsonencode() in container_definitions of aws_ecs_task_definition."
  value       = local.containers

  precondition {
    condition     = alltrue([for task in local.tasks : contains(["batch", "monitor"], task.stream)])
    error_message = "report_stream is batch or monitor."
  }
  precondition {
    condition     = alltrue([for task in local.tasks : alltrue([for name in keys(task.settings) : can(regex("^[A-Z][A-Z0-9_]*$", name))])])
    error_message = "The names of settings are upper-case environment variables, such as TASK_PROFILER_TAGS."
  }
  precondition {
    condition     = alltrue([for task in var.tasks : !startswith(upper(coalesce(task.definition.operating_system_family, "LINUX")), "WINDOWS")])
    error_message = "The monitor does not work on Windows: profile Linux tasks."
  }
  precondition {
    condition     = alltrue([for task in var.tasks : length(task.definition.containers) < 10])
    error_message = "ECS allows 10 containers, with the monitor: remove one."
  }
  precondition {
    condition = alltrue([
      for task in var.tasks : task.definition.memory == null ? true : task.definition.memory - sum(concat([0], [
        for container in task.definition.containers : coalesce(container.memory, container.memoryReservation, 0)
      ])) >= 32
    ])
    error_message = "No memory is left for the monitor: leave it 32 MiB of the task's memory beside what the containers may use."
  }
}

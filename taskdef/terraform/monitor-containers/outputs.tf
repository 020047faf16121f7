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
}

output "container_definition" {
  description = "An item for jsonencode() in container_definitions of aws_ecs_task_definition."
  value       = local.container
}

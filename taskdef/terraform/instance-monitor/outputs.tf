output "container_definitions" {
  description = "container_definitions of aws_ecs_task_definition."
  value       = jsonencode([local.container])
}

output "volumes" {
  description = "The host paths of the definition's volumes by their names."
  value       = local.volumes
}

output "policy" {
  description = "The policy of the task role."
  value = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "PutReports"
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:GetLogEvents"]
      Resource = [for group in var.log_groups : "arn:*:logs:*:*:log-group:${group}:*"]
    }]
  })
}

output "assume_role_policy" {
  description = "The trust policy of the task role."
  value = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Principal = { Service = "ecs-tasks.amazonaws.com" }, Action = "sts:AssumeRole" }]
  })
}

# A job queue of AWS Batch on EC2 instances that run one monitor for all their jobs. The two files beside it:
#   task-profiler setup batch-instances > user-data.txt
#   task-profiler setup batch-instances --policy > role-policy.json
variable "subnets" {
  type = list(string)
}

variable "security_groups" {
  type = list(string)
}

resource "aws_iam_role" "instance" {
  name_prefix = "batch-instance-"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Principal = { Service = "ec2.amazonaws.com" }, Action = "sts:AssumeRole" }]
  })
}

resource "aws_iam_role_policy_attachment" "instance" {
  role       = aws_iam_role.instance.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"
}

resource "aws_iam_role_policy" "monitor" {
  name   = "task-profiler"
  role   = aws_iam_role.instance.name
  policy = file("${path.module}/role-policy.json")
}

resource "aws_iam_instance_profile" "instance" {
  name_prefix = "batch-instance-"
  role        = aws_iam_role.instance.name
}

resource "aws_launch_template" "instance" {
  name_prefix = "batch-instance-"
  user_data   = filebase64("${path.module}/user-data.txt")

  metadata_options {
    http_tokens = "required"
  }
}

resource "aws_batch_compute_environment" "jobs" {
  type = "MANAGED"

  compute_resources {
    type                = "EC2"
    allocation_strategy = "BEST_FIT_PROGRESSIVE"
    instance_type       = ["optimal"]
    instance_role       = aws_iam_instance_profile.instance.arn
    min_vcpus           = 0
    max_vcpus           = 64
    subnets             = var.subnets
    security_group_ids  = var.security_groups

    launch_template {
      launch_template_id = aws_launch_template.instance.id
      version            = aws_launch_template.instance.latest_version
    }
  }
}

resource "aws_batch_job_queue" "jobs" {
  name     = "jobs"
  state    = "ENABLED"
  priority = 1

  compute_environment_order {
    order               = 1
    compute_environment = aws_batch_compute_environment.jobs.arn
  }
}

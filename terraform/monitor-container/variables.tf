variable "batch_container" {
  description = "Name of the batch container."
  type        = string
  default     = "batch"
  nullable    = false
}

variable "image" {
  description = "The monitor's image, which you build and push."
  type        = string
  nullable    = false
}

variable "log_group" {
  description = "Log group of the batch's awslogs log driver. For another log driver, a group of the monitor's own, which must also be the setting TASK_PROFILER_LOG_GROUP."
  type        = string
  nullable    = false
}

variable "region" {
  description = "Region of the log group. Fargate needs it."
  type        = string
  default     = null
}

variable "stream_prefix" {
  description = "The batch's awslogs-stream-prefix."
  type        = string
  default     = "ecs"
  nullable    = false
}

variable "settings" {
  description = "Environment variables of the monitor, such as TASK_PROFILER_TAGS."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.settings) : can(regex("^[A-Z][A-Z0-9_]*$", name))])
    error_message = "The names of settings are upper-case environment variables, such as TASK_PROFILER_TAGS."
  }
}

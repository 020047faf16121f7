variable "tasks" {
  description = "The tasks by a key of your own, such as the family. log_group: of the batch's awslogs log driver. For another log driver, a group of the monitor's own, which must also be the setting TASK_PROFILER_LOG_GROUP. definition: what the task has without the monitor, so that the module refuses what add-monitor refuses. The other attributes override the variables below."
  type = map(object({
    log_group       = string
    batch_container = optional(string)
    stream_prefix   = optional(string)
    region          = optional(string)
    image           = optional(string)
    report_stream   = optional(string)
    settings        = optional(map(string), {})
    definition = optional(object({
      memory                  = optional(number)
      operating_system_family = optional(string)
      containers              = optional(list(object({ memory = optional(number), memoryReservation = optional(number) })), [])
    }), {})
  }))
  nullable = false
}

variable "image" {
  description = "The monitor's image, which you build and push."
  type        = string
  nullable    = false
}

variable "batch_container" {
  description = "Name of the batch container. Unset: the task's key."
  type        = string
  default     = null
}

variable "region" {
  description = "Region of the log groups. Fargate needs it."
  type        = string
  default     = null
}

variable "stream_prefix" {
  description = "The batches' awslogs-stream-prefix."
  type        = string
  default     = "ecs"
  nullable    = false
}

variable "report_stream" {
  description = "Whose log stream gets the report: batch, or monitor, for which the task role needs no permission."
  type        = string
  default     = "batch"
  nullable    = false
}

variable "settings" {
  description = "Environment variables of all monitors, such as TASK_PROFILER_TAGS."
  type        = map(string)
  default     = {}
  nullable    = false
}

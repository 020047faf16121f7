variable "image" {
  description = "The monitor's image, which you build and push."
  type        = string
  nullable    = false
}

variable "log_groups" {
  description = "The log groups of the batches, which get the reports."
  type        = list(string)
  nullable    = false
}

variable "log_group" {
  description = "The log group of the monitor's own lines."
  type        = string
  nullable    = false
}

variable "region" {
  description = "Region of log_group. Unset: the instance's."
  type        = string
  default     = null
}

variable "memory" {
  description = "Hard limit in MiB; 192 with GPUs."
  type        = number
  default     = 128
  nullable    = false
}

variable "settings" {
  description = "Environment variables of the monitor, such as TASK_PROFILER_FAMILIES."
  type        = map(string)
  default     = {}
  nullable    = false
}

"""One monitor for an EC2 instance: its tasks, from Docker and the control groups."""

"""Docker's API, and the control groups of the tasks of an ECS instance."""

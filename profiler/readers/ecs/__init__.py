"""The ECS task metadata endpoint and the containers of the task."""

"""Changes task definitions: adds the monitor container, and changes the task size."""

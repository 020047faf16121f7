"""The monitor container, put into a task definition. Pure: a definition in, a definition and notes out."""

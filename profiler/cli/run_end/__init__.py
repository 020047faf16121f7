"""The end of ``run`` for a person. It is imported after the command has ended, and only for this format."""

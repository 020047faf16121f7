"""The commands' options and help. What a command does is imported when it runs: its help must be fast."""

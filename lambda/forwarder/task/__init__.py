"""An ended task: its event, its containers, how it ended, and where its report is."""

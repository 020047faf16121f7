"""What can be measured here, in plain words, and what to change where something is missing.

finding.py      one thing found, good or bad
task.py         the task, its batch, their sizes, the visible processes (pure)
refresh.py      how often the stats move (takes a while)
devices.py      GPUs and Neuron devices (pure)
examination.py  all of it in order
"""

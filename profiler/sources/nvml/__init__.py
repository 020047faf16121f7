"""NVIDIA GPUs through NVML, the library of the driver.

library.py    is there a driver, and the Python binding for it (imported only then)
readings.py   what is read: frozen types
remedies.py   which error asks for what (pure)
device.py     one GPU or MIG instance: its cheap fields, and those that are read seldom
xids.py       the driver's own error events
source.py     all GPUs together, through driver reloads and lost devices
"""

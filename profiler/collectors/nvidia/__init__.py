"""NVIDIA GPUs through NVML, the library of the driver."""

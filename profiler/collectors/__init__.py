"""The collectors of GPUs, Neuron cores, the batch's processes and the task's tags."""

"""GPUs, Neuron cores and processes, each collected in a thread of its own."""

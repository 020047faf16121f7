"""GPUs and Neuron cores, each watched beside the main loop: sources/nvml and sources/neuron read them."""

"""AWS Neuron devices, as neuron-monitor reports them: a process of its own that prints one JSON report a line."""

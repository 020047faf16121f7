"""The record of a run: its model, the metric catalogue, and the outputs that are made from them.

model.py            the record's types, JSON and JSON Schema
metrics.py          the metric catalogue: unit, getter and output names of each value
accelerators.py     all GPUs, or all NeuronCores, of a run together
json_line.py        the record as one JSON line below 64 KiB
text_line.py        the record as Lambda's REPORT line
emf.py              the record as CloudWatch metrics
document_fields.py  the record as the fields of a search document
sparkline.py        a time series as one line of text
units.py            conversions of units, and rounding
"""

"""Search clusters, and the delivery of documents to them."""

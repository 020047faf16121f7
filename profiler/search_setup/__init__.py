"""Index templates and dashboards for Elasticsearch and OpenSearch."""

"""The paths of the service under /v1, and those of its health and metrics."""

"""Telemetry of the node's hardware, read by the forwarder."""

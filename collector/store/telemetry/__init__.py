"""The telemetry store: client, schema, queries, and the embedded engine with its HTTP front."""

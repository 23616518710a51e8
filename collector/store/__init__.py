"""Two stores: telemetry (ClickHouse, embedded or a server) holds what ranks sent, records (SQL) what was made of it."""

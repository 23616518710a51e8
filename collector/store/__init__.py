"""Two stores: telemetry (ClickHouse, embedded or a server) holds what ranks sent; records (SQL) holds what was made of it."""

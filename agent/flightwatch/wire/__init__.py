"""The messages between forwarder and collector (flightwatch.proto) and their generated stubs."""

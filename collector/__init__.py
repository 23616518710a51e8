"""The collector: takes in what forwarders send, and keeps it in two stores (telemetry and records).

Words: a *frame* is one message of a node's forwarder; a *slice* is a run of one rank's ring; a *row* is one record in
the store; *acknowledged* means on disk.
"""

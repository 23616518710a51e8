"""From incidents to people.

message: what a channel is told. outbox: the deliveries that the records store still owes, written in the transaction
that changed the incident. channel: a way to people; it tries once, the outbox tries again.
"""

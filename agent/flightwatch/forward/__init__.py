"""The node's forwarder: rings, frames, resend, spool, life and death of ranks."""

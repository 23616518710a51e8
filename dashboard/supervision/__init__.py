"""Running the server's processes on one machine.

A part is one verb run as a process of its own (store, collector, analytics, dashboard); the supervisor starts the parts
in order, restarts one that dies, and leaves none behind.
"""

"""A simulated training job: topology, timeline and faults with known truth, streamed over the real wire."""

"""What a collector takes of a frame beyond the types of its fields. Both sides keep to it."""

from __future__ import annotations

MAX_NAME = 253  # characters: a DNS name; also the width of nodes.name
MAX_RUN = 200  # characters of a run's id
MAX_TEXT = 10_000  # characters of an op's name, module, group, dtype and backend
MAX_WORLD_SIZE = 10_000_000
MAX_ATTEMPT = (1 << 31) - 1

"""Where every byte of a ring lies: the contract between the recorder that writes it and the forwarder that reads it.

A ring is one file of RING_BYTES (8 MiB), little endian throughout:

    0x0000  header    4 KiB   HEADER, then identity as JSON
    0x1000  cells     4 KiB   128 open cells of 32 bytes, one per thread
    0x2000  control   4 KiB   written by the forwarder, read by the hooks once per step
    0x3000  names     1 MiB   op descriptors as JSON, each behind its length, appended: op 1, op 2, ...
    NAMES_END ...     records of 32 bytes, up to the end of the file
"""

from __future__ import annotations

import struct

MAGIC = b"FWRING\x00\x01"
LAYOUT_VERSION = 1
RING_BYTES = 8 << 20

# magic, layout version, record bytes, capacity (records), state, epoch, pid, start unix ns, start monotonic ns,
# records written at a clean exit, length of the identity JSON that follows
HEADER = struct.Struct("<8sIIIIQQqqQI")
HEADER_OFFSET = 0
STATE_OFFSET = 8 + 4 + 4 + 4  # u32 of HEADER, rewritten on its own
RECORDS_WRITTEN_OFFSET = HEADER.size - 4 - 8
STATE_RUNNING = 1
STATE_CLOSED = 2  # said goodbye; records_written is final

CELLS_OFFSET = 0x1000
# thread id (native), op, step, start monotonic ns, version (odd while being written)
CELL = struct.Struct("<QIIqQ")
CELL_COUNT = 128

CONTROL_OFFSET = 0x2000
# records acknowledged by a collector (all below), pause flag, sample every n-th step
CONTROL = struct.Struct("<QII")

NAMES_OFFSET = 0x3000
NAMES_BYTES = 1 << 20
NAMES_END = NAMES_OFFSET + NAMES_BYTES
NAME_LENGTH = struct.Struct("<I")  # written after its JSON, so that a length other than zero means a whole entry
MAX_OPS = 65_536  # beyond it everything is op 0, "other"

RECORDS_OFFSET = NAMES_END
# lap:8 | op:24, step, start (monotonic ns), value, sequence number, aux:24 | lap:8
# The lap is the first and the last byte: lap_op = op << 8 | lap, aux_lap = lap << 24 | aux.
RECORD = struct.Struct("<IIqqII")
RECORD_BYTES = RECORD.size
CAPACITY = (RING_BYTES - RECORDS_OFFSET) // RECORD_BYTES

# struct formats for readers that speak numpy; the agent itself does not import it
RECORD_DTYPE = [
    ("lap_op", "<u4"),
    ("step", "<u4"),
    ("start_ns", "<i8"),
    ("value", "<i8"),
    ("seq", "<u4"),
    ("aux_lap", "<u4"),
]


def lap_of(record_number: int, capacity: int = CAPACITY) -> int:
    """Return the lap (1..255, then 0, 1, ...) that marks record `record_number`; a slot never written has lap 0."""
    return (record_number // capacity + 1) & 0xFF

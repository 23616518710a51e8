"""What an op is called, the same in every rank and run: kinds, descriptors and their 64-bit keys."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

# Kinds. The value of a record is a duration in ns unless said otherwise.
STEP = "step"  # one whole step, start to start or by `with step()`
FORWARD = "forward"  # of one block; blocks never nest, so that their sum is the rank's forward time
BACKWARD = "backward"  # of one block
OPTIMIZER = "optimizer"
LOADER = "loader"  # waiting for the next batch
COLLECTIVE = "collective"  # done: from issue to completion on this rank
ISSUE = "issue"  # a collective or p2p op handed to the backend; value = bytes, same seq as its COLLECTIVE
SAMPLE = "sample"  # a number: value = the bits of an f64 ("loss", "grad_norm", "learning_rate")
OTHER = "other"  # op 0: more ops than the table holds

KINDS = (STEP, FORWARD, BACKWARD, OPTIMIZER, LOADER, COLLECTIVE, ISSUE, SAMPLE, OTHER)


@dataclass(frozen=True, slots=True)
class Op:
    """One named thing that a rank does. Two ranks that do the same have equal `key`."""

    kind: str
    name: str
    module: str = ""
    group: str = ""
    members: tuple[int, ...] = ()
    dtype: str = ""
    size_class: int = 0
    backend: str = ""

    @property
    def key(self) -> int:
        """Return the 64-bit key: BLAKE2b of (kind, name, module, members, dtype, size class), never 0."""
        text = json.dumps([self.kind, self.name, self.module, list(self.members), self.dtype, self.size_class])
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1

    def to_json(self) -> bytes:
        """Return the form kept in a ring's name area."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Op:
        """Return the op that `to_json` wrote."""
        fields = json.loads(text)
        fields["members"] = tuple(fields["members"])
        return cls(**fields)


def size_class(n_bytes: int) -> int:
    """Return the power-of-two class of a message: 1 for 1 byte, 21 for 1 MiB, 0 for nothing."""
    return n_bytes.bit_length()

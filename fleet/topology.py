"""Who the ranks of a simulated job are: their coordinates, groups and nodes."""

from __future__ import annotations

from dataclasses import dataclass

from flightwatch.errors import FlightwatchError


@dataclass(frozen=True, slots=True)
class Topology:
    """dp x pp x tp ranks on nodes of `ranks_per_node`.

    Ranks count as Megatron-LM's default order does: tensor fastest, then data, then pipeline. So a node of 8 holds one
    tensor group of 8, and arrays of one value per rank have the shape (pp, dp, tp).
    """

    dp: int = 32
    pp: int = 4
    tp: int = 8
    ranks_per_node: int = 8

    def __post_init__(self) -> None:
        for name in ("dp", "pp", "tp", "ranks_per_node"):
            if getattr(self, name) < 1:
                raise FlightwatchError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it has to be at least 1")

    @property
    def n_ranks(self) -> int:
        """Return the number of ranks."""
        return self.dp * self.pp * self.tp

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes; the last one may be partly filled."""
        return -(-self.n_ranks // self.ranks_per_node)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (pp, dp, tp)."""
        return (self.pp, self.dp, self.tp)

    def rank(self, *, dp: int, pp: int, tp: int) -> int:
        """Return the rank at these coordinates."""
        return tp + self.tp * (dp + self.dp * pp)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return dp, pp and tp of a rank."""
        rest, tp = divmod(rank, self.tp)
        pp, dp = divmod(rest, self.dp)
        return {"dp": dp, "pp": pp, "tp": tp}

    def tensor_group(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that share this rank's layers, ascending."""
        first = rank - rank % self.tp
        return tuple(range(first, first + self.tp))

    def data_group(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that average gradients with this rank, ascending."""
        at = self.coordinates(rank)
        return tuple(self.rank(dp=dp, pp=at["pp"], tp=at["tp"]) for dp in range(self.dp))

    def pipeline_group(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of this rank's pipeline, first stage first."""
        at = self.coordinates(rank)
        return tuple(self.rank(dp=at["dp"], pp=pp, tp=at["tp"]) for pp in range(self.pp))

    def node_name(self, node: int) -> str:
        """Return the name of the n-th node, such as node-017."""
        return f"node-{node:03d}"

    def node_of(self, rank: int) -> str:
        """Return the name of the node on which a rank stands."""
        return self.node_name(rank // self.ranks_per_node)

    def ranks_of(self, node_name: str) -> tuple[int, ...]:
        """Return the ranks on a node.

        Raises:
            FlightwatchError: no node has that name.
        """
        prefix, _, number = node_name.partition("-")
        if prefix != "node" or not number.isdigit() or int(number) >= self.n_nodes:
            last = self.node_name(self.n_nodes - 1)
            raise FlightwatchError(f"no node {node_name!r} in this job; its nodes are {self.node_name(0)} to {last}")
        first = int(number) * self.ranks_per_node
        return tuple(range(first, min(first + self.ranks_per_node, self.n_ranks)))


def topology_for(ranks: int, *, pp: int = 4, tp: int = 8) -> Topology:
    """Return a topology of `ranks` ranks, with fewer stages or narrower tensor groups where `ranks` is small.

    Raises:
        FlightwatchError: `ranks` is below 1.
    """
    tp = _largest_divisor(ranks, tp)
    pp = _largest_divisor(ranks // tp, pp)
    return Topology(dp=ranks // tp // pp, pp=pp, tp=tp)


def _largest_divisor(number: int, limit: int) -> int:
    if number < 1:
        raise FlightwatchError(f"a job of {number} ranks cannot be simulated; give at least 1")
    return next(divisor for divisor in range(min(limit, number), 0, -1) if number % divisor == 0)

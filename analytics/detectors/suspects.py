"""From single ranks to what stands behind them: clusters of alike ranks, nodes, or nothing that can be told from
its equals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.window import Window

Floats = NDArray[np.float64]

CANDIDATE_Z = 2.0  # ranks below are the healthy bulk; own choice, only thins what is clustered
ALIKE = 0.35  # log of z: ranks within a factor 1.4 of each other in every phase are one cluster; own choice
MAX_CLUSTERED = 2000  # agglomerative clustering is O(n^2)
SAME_EFFECT = 1.35  # effects within this factor may be one fault; own choice


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank (`index` into the topology), slow in `phase`, by `effect` (log) of its own work, from column `first`
    on.
    """

    index: int
    phase: str
    cause_phase: str
    effect: float
    z: float
    p_value: float
    first: int


@dataclass(frozen=True, slots=True)
class Group:
    """Suspects that stand for one entity: a node of which every seen rank is slow, or a single rank."""

    entity: str
    nodes: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    n_peers: int


def cluster_levels(z: Floats, eligible: NDArray[np.bool_]) -> Floats:
    """Return, for each rank, the z of its cluster: the median over ranks that are slow alike, else its own.

    Args:
        z: (n_phases, n_ranks), -inf where unknown. A rank is placed by its z in every phase, on a log scale.
        eligible: (n_ranks,) ranks whose effect is worth a look.

    A rank at the end of the healthy tail is pulled down by its neighbours there; one of a slow node is lifted by its
    own.
    """
    strongest: Floats = z.max(axis=0)
    candidates = np.flatnonzero((strongest > CANDIDATE_Z) & eligible)
    if not 2 <= len(candidates) <= MAX_CLUSTERED:
        return strongest
    # Imported when needed: it costs seconds, and a healthy job never needs it.
    from sklearn.cluster import AgglomerativeClustering

    features = np.log(np.maximum(z[:, candidates].T, 1.0))
    model = AgglomerativeClustering(n_clusters=None, distance_threshold=ALIKE, linkage="single", metric="chebyshev")
    labels = model.fit_predict(features)
    result = strongest.copy()
    for label in np.unique(labels):
        members = candidates[labels == label]
        result[members] = np.median(strongest[members])
    return result


def grouped(window: Window, roles: NDArray[np.int64], suspects: list[Suspect]) -> list[Group]:
    """Return groups, the strongest effect first; suspects that cannot be told from their equals are dropped."""
    suspects = _distinct(window, roles, suspects)
    slow = {suspect.index for suspect in suspects}
    names = window.topology.nodes
    sizes = {name: names.count(name) for name in {names[suspect.index] for suspect in suspects}}
    by_node: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        by_node.setdefault(names[suspect.index], []).append(suspect)
    groups: list[Group] = []
    for name, members in by_node.items():
        whole = bool(name) and len(members) == sizes[name] >= 2
        for part in [members] if whole else [[member] for member in members]:
            rank = int(window.topology.ranks[part[0].index])
            peers = np.flatnonzero(roles == roles[part[0].index]).tolist()
            groups.append(
                Group(
                    entity=f"node:{name}" if whole else f"rank:{rank}",
                    nodes=(name,) if name else (),
                    suspects=tuple(part),
                    n_peers=sum(peer not in slow for peer in peers),
                )
            )
    return sorted(groups, key=lambda group: -max(suspect.effect for suspect in group.suspects))


def undecided(window: Window, roles: NDArray[np.int64], suspects: list[Suspect]) -> list[Suspect]:
    """Return the suspects that are dropped because as many ranks of their role are slow alike as are not."""
    named = {suspect.index for suspect in _distinct(window, roles, suspects)}
    return [suspect for suspect in suspects if suspect.index not in named]


def _distinct(window: Window, roles: NDArray[np.int64], suspects: list[Suspect]) -> list[Suspect]:
    """Return the suspects of roles in which the healthy outnumber every group of ranks that are slow alike.

    Of two equal halves only a whole node may be named, or one of a pair.
    """
    kept: list[Suspect] = []
    for role in sorted({int(roles[suspect.index]) for suspect in suspects}):
        own = [suspect for suspect in suspects if roles[suspect.index] == role]
        size = int((roles == role).sum())
        alike, healthy = _most_alike([suspect.effect for suspect in own]), size - len(own)
        halves = alike == healthy == len(own)
        if healthy > alike or (halves and (size == 2 or _one_whole_node(window, own))):
            kept.extend(own)
    return sorted(kept, key=lambda suspect: suspect.index)


def _most_alike(effects: list[float]) -> int:
    """Return the size of the largest group of effects (log) that lie within a third of each other."""
    ordered = sorted(effects)
    return max(sum(low <= other <= low * SAME_EFFECT for other in ordered) for low in ordered)


def _one_whole_node(window: Window, suspects: list[Suspect]) -> bool:
    nodes = window.topology.nodes
    names = {nodes[suspect.index] for suspect in suspects}
    return len(names) == 1 and "" not in names and nodes.count(names.pop()) == len(suspects)

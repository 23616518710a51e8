"""The dependency graph of one training step, built from the ops that a trace shows.

Source: the dependency model of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI'25,
arXiv 2505.05713), section 3: computes of a stage run in their traced order; a receive precedes its compute, a send
follows it;
send and receive end together; gradients, embedding and clipping synchronise after the last backward.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.op_grid import OpGrid, code
from collector.ingest.straggler_trace import BACKWARD, FORWARD

EMBEDDING = "embedding-grads-all-reduce"
CLIP = "optimizer-clip-main-grad"
SEPARATE = "separate-grads-all-reduce"
REDUCE = "grads-reduce-scatter"
GATHER = "params-all-gather"
DP_SYNCED = (GATHER, REDUCE, SEPARATE, CLIP)
P2P = {  # a receive, the send that it waits for, and where the sender stands
    "forward-recv": ("forward-send", -1),
    "backward-recv": ("backward-send", +1),
}


@dataclass(frozen=True, slots=True)
class Node:
    """Ops that end together (one op, or a collective's members over stages), and what each member waits for."""

    ops: tuple[int, ...]
    waits_for: tuple[tuple[int, ...], ...]
    is_comm: bool
    over_dp: bool


@dataclass(frozen=True, slots=True)
class StepGraph:
    """Nodes in an order in which they can run, and the ops whose end is the step's end."""

    nodes: tuple[Node, ...]
    last_ops: NDArray[np.int64]


class _Builder:
    def __init__(self, grid: OpGrid) -> None:
        self.grid = grid
        self.waits: dict[int, list[int]] = defaultdict(list)
        self.groups: list[tuple[int, ...]] = []
        # Starts are compared within one step of one rank; the median over all of them keeps that order.
        self.order = np.nanmedian(grid.start.reshape(len(grid.optype), -1), axis=1)

    def of(self, stage: int, *optypes: str, by_start: bool = False) -> list[int]:
        wanted = np.isin(self.grid.optype, [code(name) for name in optypes]) & (self.grid.stage == stage)
        found = np.flatnonzero(wanted)
        key = (self.grid.seq[found], self.order[found]) if by_start else (self.grid.seq[found],)
        return [int(op) for op in found[np.lexsort(key)]]

    def chain(self, ops: list[int], after: list[int]) -> None:
        for op in ops:
            self.waits[op].extend(after)
            after = [op]

    def stage_ops(self, stage: int) -> None:
        computes = self.of(stage, FORWARD, BACKWARD, by_start=True)
        self.chain(computes, [])
        for direction, compute in (("forward", FORWARD), ("backward", BACKWARD)):
            self.transfers(stage, direction, self.of(stage, compute))
        self.first_backward(stage, computes)
        self.gather(stage)
        self.after_backward(stage, computes)

    def transfers(self, stage: int, direction: str, computes: list[int]) -> None:
        at = {int(self.grid.seq[op]): index for index, op in enumerate(computes)}
        for way in ("recv", "send"):
            ops = self.of(stage, f"{direction}-{way}")
            self.chain(ops, [])
            for op in ops:
                index = at.get(int(self.grid.seq[op]))
                if index is None:
                    continue
                if way == "send":
                    self.waits[op].append(computes[index])
                    continue
                self.waits[computes[index]].append(op)
                if index:
                    self.waits[op].append(computes[index - 1])

    def first_backward(self, stage: int, computes: list[int]) -> None:
        """Let the first backward transfers wait for the second last forward before the first backward (1F1B warm-
        up).
        """
        backward = code(BACKWARD)
        first = next((i for i, op in enumerate(computes) if self.grid.optype[op] == backward), 0)
        if first < 2:
            return
        for name in ("backward-recv", "backward-send"):
            for op in self.of(stage, name)[:1]:
                self.waits[op].append(computes[first - 2])

    def gather(self, stage: int) -> None:
        gathers = self.of(stage, GATHER)
        self.chain(gathers, [])
        forwards = self.of(stage, FORWARD, by_start=True)
        for op in gathers:
            chunk = self.grid.chunk[op]
            first = [f for f in forwards if self.grid.chunk[f] == chunk][:1] or forwards[:1]
            for forward in first:
                self.waits[forward].append(op)

    def after_backward(self, stage: int, computes: list[int]) -> None:
        last = computes[-1:]
        collect = self.of(stage, "gc")
        self.chain(collect, last)
        done = collect or last
        reduces = self.of(stage, REDUCE)
        self.chain(reduces, [])
        separate = self.of(stage, SEPARATE)
        tail = [*self.of(stage, "layernorm-grads-all-reduce"), *self.of(stage, EMBEDDING)]
        if separate:  # reduction overlaps with backward, chunk by chunk
            for op in reduces:
                chunk = self.grid.chunk[op]
                backwards = [b for b in self.of(stage, BACKWARD, by_start=True) if self.grid.chunk[b] == chunk]
                self.waits[op].extend(backwards[-1:])
            done, tail = done + reduces[-1:], tail + separate
        else:
            tail = tail + reduces
        self.chain([*tail, *self.of(stage, CLIP), *self.of(stage, "optimizer")], done)

    def group_up(self) -> None:
        grid, n_stages = self.grid, self.grid.n_stages
        at = {(int(grid.optype[i]), int(grid.seq[i]), int(grid.stage[i])): i for i in range(len(grid.optype))}
        for receive, (send, step) in P2P.items():
            for stage in range(n_stages):
                for op in self.of(stage, receive):
                    sender = at.get((code(send), int(grid.seq[op]), stage + step))
                    self.groups.append((op,) if sender is None else (op, sender))
        for name in (EMBEDDING, CLIP):
            members = tuple(op for stage in range(n_stages) for op in self.of(stage, name))
            self.groups.extend([members] if members else [])
        grouped = {op for group in self.groups for op in group}
        comm = {code(name) for name in (*DP_SYNCED, EMBEDDING, "forward-send", "backward-send")}
        for op in range(len(grid.optype)):
            if op not in grouped and int(grid.optype[op]) in comm:
                self.groups.append((op,))

    def build(self) -> StepGraph | None:
        for stage in range(self.grid.n_stages):
            self.stage_ops(stage)
        self.group_up()
        comm_ops = {op for group in self.groups for op in group}
        members = [*self.groups, *((op,) for op in range(len(self.grid.optype)) if op not in comm_ops)]
        node_of = {op: index for index, ops in enumerate(members) for op in ops}
        order = _topological(members, self.waits, node_of)
        if order is None:
            return None
        synced = {code(name) for name in DP_SYNCED}
        nodes = tuple(
            Node(
                ops=members[index],
                waits_for=tuple(tuple(self.waits[op]) for op in members[index]),
                is_comm=members[index][0] in comm_ops,
                over_dp=int(self.grid.optype[members[index][0]]) in synced,
            )
            for index in order
        )
        last = np.flatnonzero(self.grid.optype == code("optimizer"))
        return StepGraph(nodes, last if len(last) else np.arange(len(self.grid.optype)))


def graph_of(grid: OpGrid) -> StepGraph | None:
    """Return the step's graph, or None where the trace shows a schedule that cannot be replayed (interleaved
    chunks, a cycle).
    """
    computes = np.isin(grid.optype, (code(FORWARD), code(BACKWARD)))
    if len(np.unique(grid.chunk[computes])) > 1:
        return None  # interleaved stages wrap around; their transfers carry no chunk in this format
    return _Builder(grid).build()


def _topological(
    members: list[tuple[int, ...]], waits: dict[int, list[int]], node_of: dict[int, int]
) -> list[int] | None:
    before: list[set[int]] = [{node_of[w] for op in ops for w in waits[op]} for ops in members]
    after: dict[int, list[int]] = defaultdict(list)
    for index, needed in enumerate(before):
        for other in needed:
            after[other].append(index)
    missing = [len(needed) for needed in before]
    ready = deque(index for index, count in enumerate(missing) if count == 0)
    order: list[int] = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for following in after[index]:
            missing[following] -= 1
            if missing[following] == 0:
                ready.append(following)
    return order if len(order) == len(members) else None

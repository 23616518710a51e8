"""From the findings of one look to suspects: one for each culprit, a node in place of its ranks if most suffer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from analytics.findings import INFO, Finding, spoken

EVIDENCE_KEPT = 8
MACHINES = ("rank", "node", "device", "nic", "link", "switch", "rail")
NODE_SHARE = 0.5  # a node stands for its ranks once at least this share of them is suspected at once


def suspects_of(findings: Iterable[Finding], node_sizes: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return one finding per kind and entity, the broadest culprits first.

    Args:
        findings: what the detectors said.
        node_sizes: node -> number of its ranks. Ranks of a job's only node are never folded: to blame it says nothing.
    """
    best: dict[tuple[str, str, str], Finding] = {}
    for finding in fold_nodes(tuple(findings), node_sizes):
        # explanations of different causes stand beside each other; of two accusations of one culprit the dearer speaks
        key = (finding.kind, finding.entity, finding.cause if finding.severity == INFO else "")
        if key not in best or weight(finding) > weight(best[key]):
            best[key] = finding
    return tuple(sorted(best.values(), key=lambda finding: (-len(finding.ranks), finding.kind, finding.entity)))


def weight(finding: Finding) -> tuple[bool, float, float]:
    """Return what ranks findings on the same culprit: guilty before innocent, then cost, then confidence."""
    return (finding.severity != INFO, finding.cost.slowdown, finding.confidence)


def fold_nodes(findings: tuple[Finding, ...], node_sizes: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return `findings` with those on ranks replaced by one on their node where they are most of its ranks."""
    if len(node_sizes) < 2:
        return findings
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.entity.startswith("rank:") and len(finding.nodes) == 1 and finding.severity != INFO:
            groups[finding.kind, finding.nodes[0]].append(finding)
    folded: dict[int, Finding | None] = {}
    for (_, node), group in groups.items():
        ranks = {rank for finding in group for rank in finding.ranks}
        if len(ranks) < 2 or len(ranks) < NODE_SHARE * node_sizes.get(node, 0):
            continue
        folded.update({id(finding): None for finding in group})
        folded[id(group[0])] = _node_finding(node, node_sizes.get(node, len(ranks)), group)
    kept = (folded.get(id(finding), finding) for finding in findings)
    return tuple(finding for finding in kept if finding is not None)


def _node_finding(node: str, size: int, group: list[Finding]) -> Finding:
    worst = max(group, key=weight)
    ranks = tuple(sorted({rank for finding in group for rank in finding.ranks}))
    evidence = [item for finding in sorted(group, key=weight, reverse=True) for item in finding.evidence[:2]]
    return replace(
        worst,
        entity=f"node:{node}",
        ranks=ranks,
        nodes=(node,),
        first_step=min(finding.first_step for finding in group),
        last_step=max(finding.last_step for finding in group),
        summary=f"{len(ranks)} of {size} ranks of {spoken(f'node:{node}')} suffer alike; the worst: {worst.summary}",
        evidence=tuple(evidence[:EVIDENCE_KEPT]),
    )


def is_about_the_same(one: Finding, other: Finding) -> bool:
    """Return whether two findings are one trouble: same kind, and culprits that are equal or contain one another.

    Only machines contain one another (a node its ranks, a switch its nodes); a stage or the job is another matter.
    """
    if one.kind != other.kind or (one.severity == INFO) != (other.severity == INFO):
        return False
    if one.severity == INFO:
        return (one.entity, one.cause) == (other.entity, other.cause)
    if one.entity == other.entity:
        return True
    return _is_machine(one) and _is_machine(other) and (_contains(one, other) or _contains(other, one))


def _is_machine(finding: Finding) -> bool:
    return finding.entity.partition(":")[0] in MACHINES


def _contains(broad: Finding, narrow: Finding) -> bool:
    if broad.entity.startswith("node:") and narrow.nodes == (broad.entity.removeprefix("node:"),):
        return True
    return bool(narrow.ranks) and set(narrow.ranks) <= set(broad.ranks)

from __future__ import annotations

import numpy as np

from fleet.faults import slow_node
from fleet.hosts import Hosts
from fleet.topology import Topology

TOPOLOGY = Topology(dp=4, pp=2, tp=8)


def test_slow_node_heats_up_slowly_and_cools_down_again() -> None:
    hosts = Hosts(TOPOLOGY, seed=1)
    fault = slow_node(TOPOLOGY, "node-005", factor=1.4, first_step=0, last_step=9)

    calm = hosts.read(1.0, [])["temperature_celsius"][5]
    warm = [hosts.read(1.0, [fault])["temperature_celsius"][5] for _ in range(120)]
    cool = [hosts.read(1.0, [])["temperature_celsius"][5] for _ in range(120)]

    assert warm[0] - calm < 2.0
    assert 8.0 < warm[-1] - calm < 12.0
    assert abs(cool[-1] - calm) < 2.0


def test_readings_of_all_nodes_are_plausible() -> None:
    readings = Hosts(TOPOLOGY, seed=1).read(1.0, [])

    assert {8} == {len(values) for values in readings.values()}
    assert ((readings["cpu_busy_ratio"] > 0) & (readings["cpu_busy_ratio"] < 1)).all()
    assert ((readings["temperature_celsius"] > 50) & (readings["temperature_celsius"] < 72)).all()
    assert (readings["memory_available_bytes"] > 0.5 * (1 << 40)).all()
    assert len(np.unique(readings["temperature_celsius"])) > 1

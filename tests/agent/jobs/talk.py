"""One of two ranks, without any import of flightwatch, for tests/agent/test_collectives.py.

talk.py MODE    everything: each way to talk, once; leave: exit while 200 all-reduces are on their way
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def ones(n: int = 4) -> torch.Tensor:
    return torch.ones(n)


def collectives(rank: int) -> None:
    dist.all_reduce(ones())
    work = dist.all_reduce(ones(), async_op=True)
    assert work is not None
    work.wait()
    dist.broadcast(ones(), 0)
    dist.all_gather([ones(), ones()], ones())
    dist.reduce_scatter(ones(), [ones(), ones()])
    dist.reduce_scatter_tensor(ones(2), ones())
    dist.gather(ones(), [ones(), ones()] if rank == 0 else None)
    dist.scatter(ones(), [ones(), ones()] if rank == 0 else None)
    dist.barrier()
    with torch.inference_mode():
        dist.all_reduce(ones(8))


def from_cpp() -> None:
    """Those that no function of torch.distributed issues."""
    world: Any = dist.group.WORLD
    assert (functional.all_reduce(ones(), "sum", world) + 0).tolist() == [2.0] * 4
    assert (functional.reduce_scatter_tensor(ones(), "sum", 0, world) + 0).tolist() == [2.0] * 2
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    sharded = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    assert sharded.redistribute(mesh, [Replicate()]).to_local().tolist() == list(range(8))
    model = DistributedDataParallel(nn.Linear(3, 3))
    model(torch.ones(1, 3)).sum().backward()


def point_to_point(rank: int) -> None:
    if rank == 0:
        dist.send(ones(), 1)
    else:
        dist.recv(ones(), 0)
    other = 1 - rank
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, ones(), other), dist.P2POp(dist.irecv, ones(), other)]):
        work.wait()


def groups(rank: int) -> None:
    backwards = dist.new_group([1, 0])
    dist.all_reduce(ones(), group=backwards)
    solos = [dist.new_group([0]), dist.new_group([1])]
    dist.all_reduce(ones(), group=solos[rank])


def start(generation: int) -> None:
    meeting = f"file://{os.environ['FLIGHTWATCH_DIR']}/store-{generation}"
    dist.init_process_group("gloo", init_method=meeting, rank=int(os.environ["RANK"]), world_size=2)


def everything(rank: int) -> None:
    collectives(rank)
    from_cpp()
    point_to_point(rank)
    groups(rank)
    dist.destroy_process_group()
    # once more, with the names of the groups used again by others
    start(1)
    dist.new_group([0, 1])
    for solo in ([1], [0]):
        group = dist.new_group(solo)
        if rank in solo:
            dist.all_reduce(ones(), group=group)
    dist.destroy_process_group()


def leave() -> None:
    for _ in range(200):
        dist.all_reduce(ones(1000), async_op=True)


def main(mode: str) -> None:
    torch.set_num_threads(1)
    start(0)
    if mode == "everything":
        everything(int(os.environ["RANK"]))
    else:
        leave()


if __name__ == "__main__":
    main(*sys.argv[1:])

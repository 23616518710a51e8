"""A training job without any import of flightwatch: what tests/agent/test_run.py starts with and without the agent.

job.py MODE [ARGUMENT]    train: 4 steps, then as MODE says: end, raise, exit3, fork, groups, grpc ADDRESS
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = 4


def say(line: str) -> None:
    """Print a line in one write: two ranks share a pipe, and torchrun starts them unbuffered."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.right(torch.relu(self.left(x)))
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(16, 8)
        self.h = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.wte(x)
        for layer in self.h:
            x = layer(x)
        out: torch.Tensor = self.head(x)
        return out


class Job:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        if self.world_size > 1:
            dist.init_process_group("gloo")
        model = Model()
        self.model = DistributedDataParallel(model) if self.world_size > 1 else model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        data = TensorDataset(torch.arange(1024).add(self.rank).remainder(16).view(512, 2))
        self.batches = iter(DataLoader(data, batch_size=4))

    def step(self) -> None:
        (x,) = next(self.batches)
        loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), x.flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch ships it so
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        say(f"rank {self.rank} loss {loss.item()!r}")


def groups(job: Job) -> None:
    """Every other way to talk: point to point, a group, functional, blocking barriers."""
    import torch.distributed._functional_collectives as functional

    ones = torch.ones(256)
    if job.rank == 0:
        dist.send(ones, 1)
        work = dist.isend(ones, 1)
    else:
        dist.recv(ones, 0)
        work = dist.irecv(ones, 0)
    assert work is not None
    work.wait()
    pair = dist.new_group([0, 1])
    dist.all_reduce(ones, group=pair)
    total = functional.all_reduce(ones, "sum", pair)
    say(f"rank {job.rank} total {(total + 0).sum().item()}")
    dist.monitored_barrier()
    dist.barrier()


def fork(job: Job, children: int = 5) -> None:
    """Children that load, train and exit by themselves, in mid-run."""
    for number in range(children):
        if os.fork() == 0:
            job.step()
            sys.exit(number)
        say(f"child {os.waitstatus_to_exitcode(os.wait()[1])}")
        job.step()


def call_from_children(job: Job, address: str) -> None:
    """200 children in mid-run, 10 at a time, each with a gRPC channel of its own."""
    import grpc

    failed = 0
    for _ in range(20):
        children = []
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                with grpc.insecure_channel(address) as channel:
                    reply = channel.unary_unary("/echo/Echo")(b"hello", timeout=30)
                os._exit(0 if reply == b"hello" else 1)
            children.append(pid)
        job.step()
        failed += sum(os.waitpid(pid, 0)[1] != 0 for pid in children)
    say(f"{failed} of 200 failed")


def main(mode: str, *arguments: str) -> None:
    job = Job()
    for _ in range(STEPS):
        job.step()
    if mode == "raise":
        raise ValueError("mine")
    if mode == "exit3":
        sys.exit(3)
    if mode == "fork":
        fork(job)
    if mode == "groups":
        groups(job)
    if mode == "grpc":
        call_from_children(job, *arguments)
    if job.world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

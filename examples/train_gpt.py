"""Train a small GPT on a shipped text, with nothing but PyTorch: what flightwatch watches without a change of code.

    flightwatch run -- torchrun --standalone --nproc_per_node 4 examples/train_gpt.py --steps 300
    flightwatch run -- torchrun --standalone --nproc_per_node 4 examples/train_gpt.py --steps 300 \\
        --slow-rank 2 --slow-factor 1.5 --slow-steps 100:200

It needs no accelerator: bytes of examples/text.txt, data parallel over gloo, one thread a rank.
`--slow-rank` makes one rank slow by real work: in each of its blocks' forwards it multiplies matrices, sized so that
the rank computes `--slow-factor` times as long as it did in its own first steps.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

TEXT = Path(__file__).with_name("text.txt")
VOCABULARY = 256  # bytes
MEASURED_STEPS = range(2, 12)  # whose compute time sizes the slow rank's extra work; the first two warm up


class Bytes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of a text as (bytes, the bytes that follow), each of shape `(length,)`, int64."""

    def __init__(self, text: bytes, *, length: int) -> None:
        self._text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._length = length

    def __len__(self) -> int:
        """Return the number of windows; they overlap."""
        return len(self._text) - self._length

    def __getitem__(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the window that begins at `start`."""
        window = self._text[start : start + self._length + 1].long()
        return window[:-1], window[1:]


class ExtraWork:
    """Matrix products that a slow rank computes on top of its own; `products` in each block's forward, 0 for none."""

    def __init__(self, size: int = 192) -> None:
        self._left = torch.eye(size)
        self._right = torch.ones(size, size)
        self.products = 0

    def compute(self) -> None:
        """Multiply."""
        with torch.no_grad():
            for _ in range(self.products):
                torch.mm(self._left, self._right)

    def cpu_seconds_per_product(self) -> float:
        """Return what one product costs this thread, measured over 100."""
        before, self.products = self.products, 100
        start = time.thread_time()
        self.compute()
        self.products = before
        return (time.thread_time() - start) / 100


class Block(nn.Module):
    """One transformer layer: causal attention and a feed-forward net, each behind a norm and around a residual."""

    def __init__(self, d_model: int, heads: int, extra: ExtraWork) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.ln_2 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))
        self.extra = extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of shape `(batch, length, d_model)`, one layer further."""
        self.extra.compute()
        batch, length, d_model = x.shape
        split = (batch, length, self.heads, d_model // self.heads)
        query, key, value = (part.view(split).transpose(1, 2) for part in self.qkv(self.ln_1(x)).chunk(3, dim=-1))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, d_model))
        feed_forward: torch.Tensor = self.mlp(self.ln_2(x))
        return x + feed_forward


class GPT(nn.Module):
    """A byte-level language model."""

    def __init__(self, *, d_model: int, layers: int, heads: int, length: int, extra: ExtraWork) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, d_model)
        self.wpe = nn.Embedding(length, d_model)
        self.h = nn.ModuleList(Block(d_model, heads, extra) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, VOCABULARY, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits of shape `(batch, length, 256)` for bytes of shape `(batch, length)`."""
        x = self.wte(text) + self.wpe(torch.arange(text.shape[1]))
        for block in self.h:
            x = block(x)
        logits: torch.Tensor = self.head(self.ln_f(x))
        return logits


class Slowness:
    """Turns one rank slow in a range of steps, by as much as told of its own measured compute time."""

    def __init__(self, extra: ExtraWork, *, layers: int, factor: float, steps: range) -> None:
        self._extra = extra
        self._layers = layers
        self._factor = factor
        self._steps = steps
        self._compute_seconds: list[float] = []
        self._products: int | None = None

    def begin(self, step: int) -> None:
        """Set the extra work of this step."""
        if step in self._steps and self._products is None:
            self._products = self._size()
        self._extra.products = (self._products or 0) if step in self._steps else 0

    def computed(self, step: int, cpu_seconds: float) -> None:
        """Learn the CPU time of one step's forward and backward."""
        if step in MEASURED_STEPS and step not in self._steps:
            self._compute_seconds.append(cpu_seconds)

    def _size(self) -> int:
        if not self._compute_seconds:
            return 0
        normal = sorted(self._compute_seconds)[len(self._compute_seconds) // 2]
        extra = (self._factor - 1.0) * normal / self._layers
        return max(0, round(extra / self._extra.cpu_seconds_per_product()))


def parse() -> argparse.Namespace:
    """Return the command line's flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=3, help="windows per rank and step")
    parser.add_argument("--length", type=int, default=128, help="bytes per window")
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--slow-rank", type=int, default=-1, help="the rank to slow down; -1 for none")
    parser.add_argument("--slow-factor", type=float, default=1.5, help="how many times as long it computes")
    parser.add_argument("--slow-steps", default="100:200", metavar="A:B", help="from step A up to, not including, B")
    return parser.parse_args()


def loader(args: argparse.Namespace, rank: int, world_size: int) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """Return this rank's batches, in an order that the seed fixes."""
    text = Bytes(TEXT.read_bytes(), length=args.length)
    sampler: DistributedSampler[int] = DistributedSampler(text, num_replicas=world_size, rank=rank, seed=args.seed)
    return DataLoader(text, batch_size=args.batch, sampler=sampler, drop_last=True)


def train(args: argparse.Namespace, rank: int, world_size: int) -> None:
    """Train for `args.steps` steps; rank 0 prints the loss."""
    extra = ExtraWork()
    torch.manual_seed(args.seed)
    model = GPT(d_model=args.d_model, layers=args.layers, heads=args.heads, length=args.length, extra=extra)
    parallel = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=3e-4)
    first, last = (int(part) for part in args.slow_steps.split(":"))
    slow_steps = range(first, last) if rank == args.slow_rank else range(0)
    slowness = Slowness(extra, layers=args.layers, factor=args.slow_factor, steps=slow_steps)
    step = 0
    while step < args.steps:
        for text, target in loader(args, rank, world_size):
            slowness.begin(step)
            start = time.thread_time()
            loss = functional.cross_entropy(parallel(text).flatten(0, 1), target.flatten())
            loss.backward()  # type: ignore[no-untyped-call]  # torch ships it so
            slowness.computed(step, time.thread_time() - start)
            torch.nn.utils.clip_grad_norm_(parallel.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0 and step % args.log_every == 0:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            step += 1
            if step == args.steps:
                break


def main() -> None:
    """Join the job that torchrun tells of, or train alone."""
    args = parse()
    torch.set_num_threads(1)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("gloo")
    train(args, rank, world_size)
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

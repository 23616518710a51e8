"""A small model and a loop over it, with what hooks find hard: in-place operations, integer inputs, recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Layer(nn.Module):
    def __init__(self, *, recomputes: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.net(x)
        return out


class Model(nn.Module):
    def __init__(self, recompute: str = "") -> None:
        super().__init__()
        self.wte = nn.Embedding(16, 8)
        self.h = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(8, 16)
        self.recompute = recompute
        self.breaks_at: int | None = None
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.wte(x)
        x *= 0.5  # in place, on a block's output: full backward hooks would raise here
        for layer in self.h:
            if self.recompute:
                x = checkpoint(layer, x, use_reentrant=self.recompute == "reentrant")
            else:
                x = layer(x)
                x += 1.0
        out: torch.Tensor = self.head(x)
        return out


def train(
    *,
    n_steps: int = 4,
    micro: int = 1,
    model: Model | None = None,
    around: Callable[[], Any] | None = None,
    before: Callable[[nn.Module, Any], None] = lambda model, optimizer: None,
) -> list[float]:
    """Train, and give back each loss and a sum over the weights at the end."""
    torch.manual_seed(0)
    model = Model() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before(model, optimizer)
    data = DataLoader(TensorDataset(torch.arange(64).remainder(16).view(32, 2)), batch_size=4)
    batches = iter(data)
    losses = []
    for _ in range(n_steps):
        for _ in range(micro):
            (x,) = next(batches)
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
            loss.backward()  # type: ignore[no-untyped-call]  # torch ships it so
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    losses += [parameter.double().sum().item() for parameter in model.parameters()]
    return losses

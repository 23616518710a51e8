"""The same with three lines of one's own: `python examples/three_lines.py` trains a tiny net under flightwatch.

FLIGHTWATCH_COLLECTOR says where records go (127.0.0.1:7460 if unset); without a collector it trains just as well.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flightwatch


def main() -> None:
    """Fit noise."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    batches = DataLoader(data, batch_size=32)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    flightwatch.init(run="three-lines")  # 1
    flightwatch.watch(model, optimizer=optimizer, dataloader=batches)  # 2
    for inputs, target in batches:
        with flightwatch.step():  # 3
            loss = nn.functional.mse_loss(model(inputs), target)
            loss.backward()  # type: ignore[no-untyped-call]  # torch ships it so
            optimizer.step()
            optimizer.zero_grad()
            flightwatch.log(loss=loss)
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

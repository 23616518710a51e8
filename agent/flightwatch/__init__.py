"""flightwatch in a training process: record every step, never get in its way.

    import flightwatch

    flightwatch.init()
    flightwatch.watch(model, optimizer=optimizer, dataloader=loader)

Or change no code at all: `flightwatch run -- torchrun ... train.py`. Words: a *run* is one training effort, an
*attempt* one start of it, an *epoch* one process's life.
"""

from flightwatch._public import close, init, log, step, watch
from flightwatch._version import __version__

__all__ = ["__version__", "close", "init", "log", "step", "watch"]

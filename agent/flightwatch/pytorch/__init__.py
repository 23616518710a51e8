"""Hooks into PyTorch: modules, optimizers, data loaders, collectives, and the numbers that a step yields.

Words: a *block* is a module of which a model has several in a row (a transformer layer), or a leaf outside of them;
blocks never nest. The *root* is the model itself, without wrappers such as DDP. A *micro-batch* is one call of the
root within a step.
"""

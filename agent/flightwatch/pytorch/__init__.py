"""Hooks for modules, optimizers, data loaders and collectives."""

"""Verbs of the command line that the collector brings: collector, store, migrate."""

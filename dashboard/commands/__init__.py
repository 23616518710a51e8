"""Verbs of the command line that the dashboard brings: dashboard, up, demo."""

"""Verbs of the command line that analytics brings: analytics, diagnose, runs, incidents, status."""

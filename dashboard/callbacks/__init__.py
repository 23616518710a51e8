"""Callbacks join queries, figures and pages, nothing else. All are async: a synchronous one would block the loop."""

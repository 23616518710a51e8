"""Grouping findings into incidents, and their life."""

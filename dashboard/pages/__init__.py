"""Dash pages: layout and callbacks."""

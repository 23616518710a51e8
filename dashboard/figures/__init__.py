"""Figures: pure functions from arrays to Plotly figures, one chart per file.

mark: a step pointed at. pooled: several ranks or steps in one cell, which shows the worst of them.
"""

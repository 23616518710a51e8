"""Analytics: from arrays to findings, from findings to incidents, from incidents to people.

Words: a *window* is a span of steps; a *finding* is one detector's verdict on it; an *incident* is what a person is
told about; a *role* is what ranks must share to be compared (pipeline stage, chunk, expert group); *peers* are ranks
of one role.
"""

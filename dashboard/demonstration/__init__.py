"""The demo: a simulated job with slow nodes, told as a story beside what flightwatch says about it.

The truth is what the fleet injects; the news is what the records store says that analytics found.
"""

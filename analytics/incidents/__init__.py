"""From findings to incidents.

look: what all detectors said about one window of one run. suspect: one culprit that a look names. track: a suspect
followed from look to look, pending until it has held long enough, then an incident. note: an innocent explanation; it
is kept, but nobody is called for it.
"""

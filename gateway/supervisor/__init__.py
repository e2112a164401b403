"""What `make run` starts: every process of one Farthing on one machine, under one parent.

Linux only. Nothing here imports Django, so that the parent stays small and outlives its children.
"""

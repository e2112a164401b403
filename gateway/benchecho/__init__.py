"""benchecho: the built-in vendor, a fixed answer whose faults are chosen by the model's name.

It runs by itself (`uvicorn gateway.benchecho.app:application`, one worker, loopback) and imports
nothing of the project outside this folder.
"""

"""What gateway processes and the sweep agree on."""

LIFE_LOCK = 0x6661  # the class of the advisory lock that a living gateway holds, by its id
SWEEP_PROCESS = -1  # the row by which the sweep says that it is answered

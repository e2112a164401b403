from collections.abc import Sequence


class StartError(Exception):
    """Farthing cannot start or go on; the text is one sentence for the person at the terminal.

    `details` are last lines of a log, for when a program of our own has failed.
    """

    def __init__(self, sentence: str, details: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.details = tuple(details)


class StopRequested(Exception):  # no error: somebody asked us to end
    """Raised out of a wait once SIGINT, SIGTERM or SIGHUP has arrived."""

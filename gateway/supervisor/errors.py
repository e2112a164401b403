class StartError(Exception):
    """Farthing cannot start or go on; the text is one sentence for the person at the terminal."""


class StopRequested(Exception):  # noqa: N818  # no error: somebody asked us to end
    """Raised out of a wait once SIGINT, SIGTERM or SIGHUP has arrived."""

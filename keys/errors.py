"""What can go wrong with tenants and keys."""


class KeysError(Exception):
    """Base of this app's errors; the message may be shown to the person who asked."""


class KeyNotFound(KeysError):
    """No such key in this tenant."""


class BadTranscriptChoice(KeysError):
    """No such policy, or days outside the bounds."""


class BadKeyRequest(KeysError):
    """A field of a key cannot be what was asked; `field` says which."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

"""Files and folders that are their owner's alone."""

import os
from pathlib import Path

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def write_private(path: Path, text: str) -> None:
    """Replace `path` at once by a file that only its owner reads."""
    draft = path.with_name(path.name + ".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)

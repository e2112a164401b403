"""benchecho's own count of what it answered, to reconcile a gateway's books with."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

MAX_MODELS_COUNTED: Final = 1_000
OTHER_MODELS: Final = "other"


@dataclass(slots=True)
class Count:
    """`requests` = `finished` + `failed` + `abandoned` + those still open.

    Finished: the whole answer was handed to the server. Failed: an error, or a cut, was asked
    for. Abandoned: the client left first. The tokens are the true ones of finished answers,
    whatever the vendor said of them.
    """

    requests: int = 0
    finished: int = 0
    failed: int = 0
    abandoned: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(slots=True)
class Stats:
    """Counts since the process started; of this process alone."""

    total: Count = field(default_factory=Count)
    by_model: dict[str, Count] = field(default_factory=dict)

    def counts_of(self, model: str) -> tuple[Count, Count]:
        """The two counts that one request of a model moves."""
        if model not in self.by_model and len(self.by_model) >= MAX_MODELS_COUNTED:
            model = OTHER_MODELS
        return self.total, self.by_model.setdefault(model, Count())

    def as_json(self) -> dict[str, Any]:
        models = {model: asdict(count) for model, count in self.by_model.items()}
        return {**asdict(self.total), "by_model": models}

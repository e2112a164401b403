"""What a family of models is: a vocabulary, and the arithmetic of its chat template."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from billing.estimation.images import Image
from billing.estimation.reading import Choice, Message, Prompt
from billing.estimation.text import Tally

IMAGE_TOKENS = 1_024
"""For an image where the family's own rule is not known."""
OTHER_MEDIA_TOKENS = 1_024
"""For a sound, film or file, whose real cost no vendor publishes as a rule of its bytes."""

PromptRule = Callable[[Prompt, Tally], int]
"""Tokens of a prompt. It only adds up what the tally says, so that a bound in gives a bound out."""
ChoiceRule = Callable[[Choice, Prompt, Tally], int]
"""Tokens of one answer that delivered something; the prompt says what it answered."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Expected relative errors (half of all calls are nearer), measured on recorded calls."""

    plain: Decimal
    tools: Decimal
    completion: Decimal


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the registry.

    `own_vocabulary` is false where the vendor's is not public and another stands in for it;
    `public_template` where the template's text is known, not deduced from recordings, also for
    tools if `public_tools`. `hides_reasoning` tells the requests whose models reason out of sight.
    """

    name: str
    title: str
    vocabulary: str
    prompt: PromptRule
    completion: ChoiceRule
    errors: Errors
    own_vocabulary: bool = True
    public_template: bool = False
    public_tools: bool = False
    hides_reasoning: Callable[[Prompt], bool] = lambda _prompt: False


def scaled(tokens: int, per_mille: int) -> int:
    """Tokens of a stand-in vocabulary times a factor in thousandths, rounded half up."""
    return (tokens * per_mille + 500) // 1000


def _usual_image_tokens(_image: Image) -> int:
    return IMAGE_TOKENS


def media_tokens(
    messages: tuple[Message, ...], image_tokens: Callable[[Image], int] = _usual_image_tokens
) -> int:
    """What is not text in the messages; `image_tokens` is the family's rule, if it has one."""
    images = sum(image_tokens(image) for message in messages for image in message.images)
    return images + OTHER_MEDIA_TOKENS * sum(message.other_media for message in messages)


EXACT = Decimal(0)

import pytest
import requests

from tests.stack import until


@pytest.fixture
def ready_price(stack, world):
    """Gives a model a price and waits until the gateway knows it."""
    from billing.models import Price

    def make(model: str) -> None:
        if not Price.objects.filter(model=model).exists():
            world.price(model)
        secret = world.key(world.tenant(balance="0")).secret

        def is_known() -> bool:
            answer = requests.post(
                f"{stack.base_url}/v1/chat/completions",
                json={"model": model, "messages": [{"role": "user", "content": "x"}]},
                headers={"Authorization": f"Bearer {secret}"},
                timeout=10,
            )
            return answer.status_code == 402

        until(is_known)

    return make

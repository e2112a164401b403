import math

import pytest

from gateway.upstream import Timeouts


@pytest.mark.parametrize("bound", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("name", ["connect_s", "first_byte_s", "idle_s", "total_s"])
def test_every_bound_is_finite_and_above_zero(name, bound):
    bounds = {"connect_s": 1.0, "first_byte_s": 1.0, "idle_s": 1.0, "total_s": 1.0}
    with pytest.raises(ValueError, match="finite and above zero"):
        Timeouts(**(bounds | {name: bound}))

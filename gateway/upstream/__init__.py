"""The way out to the vendors: `Upstream` opens calls, `UpstreamResponse` reads them."""

from gateway.upstream.client import Upstream
from gateway.upstream.response import UpstreamResponse
from gateway.upstream.timeouts import Timeouts

__all__ = ["Timeouts", "Upstream", "UpstreamResponse"]

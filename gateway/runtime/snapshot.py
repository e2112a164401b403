"""The catalog in memory: one immutable value, replaced as a whole when PostgreSQL says so."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from billing.corrections import all_in_force, value_of
from billing.estimation import Correction
from billing.moments import one_moment
from gateway.models import CachedTokens, ClientGone, Model, Route, Vendor
from gateway.qualification.gate import takes_live_traffic
from gateway.runtime.tariffs import Tariffs, load_tariffs
from gateway.upstream import Timeouts

TEST_VENDOR = "benchecho"
TEST_VENDOR_MODEL = "echo"
USER_AGENT = b"Farthing"
MILLISECONDS = 1_000


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a vendor's breakers open; `failures` 0: never, and none of its routes rests either."""

    failures: int = 5
    percent: int = 50
    window_s: float = 30.0
    pause_s: float = 10.0


@dataclass(frozen=True, slots=True)
class VendorAccess:
    """How to reach a vendor. Equal values share a connection pool.

    `request_headers` is all that it is told besides the body: nothing of a client's headers goes
    along. `hidden_words` must not appear in an error that a client sees.
    """

    id: int
    name: str
    base_url: str
    credential: str = field(repr=False)
    timeouts: Timeouts
    max_connections: int
    keep_alive_s: float
    breaker: BreakerSettings
    drains_when_client_is_gone: bool
    cached_beside: bool | None
    accepts_stream_options: bool
    request_headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    hidden_words: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RouteTo:
    """`correction` is what this vendor's own counts have taught of ours."""

    vendor: VendorAccess
    vendor_model: str
    family: str | None
    priority: int
    weight: int
    correction: Correction | None = None


@dataclass(frozen=True, slots=True)
class PublicModel:
    name: str
    family: str | None
    context_tokens: int
    max_output_tokens: int
    default_output_tokens: int
    created_s: int
    routes: tuple[RouteTo, ...]
    test_route: RouteTo | None
    sticky_routes: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    models: Mapping[str, PublicModel] = field(default_factory=dict)
    tariffs: Tariffs = field(default_factory=Tariffs)

    def routes(self) -> Iterator[RouteTo]:
        """Every route of every model, those of test keys among them."""
        for model in self.models.values():
            yield from model.routes
            if model.test_route is not None:
                yield model.test_route

    def counted_as(self) -> set[tuple[str, str | None]]:
        """Vendor's model and family of each model's first route: what a hold is counted by."""
        return {
            (model.routes[0].vendor_model, model.routes[0].family or model.family)
            for model in self.models.values()
            if model.routes
        }


@one_moment()
def load_snapshot() -> Snapshot:
    """Read the catalog as it is at one moment: seven queries, however large it is.

    Routes of vendors that may not take live traffic are left out; test keys reach theirs still.
    """
    rows = {vendor.pk: vendor for vendor in Vendor.objects.filter(is_active=True)}
    live = {pk for pk, vendor in rows.items() if takes_live_traffic(vendor)}
    vendors = {pk: access_of(vendor) for pk, vendor in rows.items()}
    test_vendor = next((v for v in vendors.values() if v.name == TEST_VENDOR), None)
    routes: dict[int, list[RouteTo]] = {}
    tested: dict[int, RouteTo] = {}
    corrections = all_in_force()
    for row in Route.objects.order_by("priority", "pk"):
        if row.vendor_id not in vendors:
            continue
        vendor = vendors[row.vendor_id]
        corrected = value_of(corrections.get((vendor.name, row.vendor_model)))
        route = _route(row, vendor, corrected)
        if row.vendor_id in live:
            routes.setdefault(row.model_id, []).append(route)
        if route.vendor is test_vendor:
            tested.setdefault(row.model_id, route)
    plain = _plain_echo(test_vendor)
    return Snapshot(
        {
            model.name: _public(model, routes.get(model.pk, []), tested.get(model.pk, plain))
            for model in Model.objects.filter(is_active=True)
        },
        load_tariffs(),
    )


def access_of(vendor: Vendor) -> VendorAccess:
    cached = {CachedTokens.AUTO: None, CachedTokens.INSIDE: False, CachedTokens.BESIDE: True}
    credential = vendor.credential.strip()
    return VendorAccess(
        id=vendor.pk,
        name=vendor.name,
        base_url=vendor.base_url,
        credential=credential,
        timeouts=Timeouts(
            connect_s=vendor.connect_timeout_ms / MILLISECONDS,
            first_byte_s=vendor.first_byte_timeout_ms / MILLISECONDS,
            idle_s=vendor.idle_timeout_ms / MILLISECONDS,
            total_s=vendor.total_timeout_ms / MILLISECONDS,
        ),
        max_connections=vendor.max_connections,
        keep_alive_s=vendor.keep_alive_ms / MILLISECONDS,
        breaker=BreakerSettings(
            failures=vendor.breaker_failures,
            percent=vendor.breaker_percent,
            window_s=vendor.breaker_window_ms / MILLISECONDS,
            pause_s=vendor.breaker_pause_ms / MILLISECONDS,
        ),
        drains_when_client_is_gone=vendor.client_gone == ClientGone.DRAIN,
        cached_beside=cached[CachedTokens(vendor.cached_tokens)],
        accepts_stream_options=vendor.accepts_stream_options,
        request_headers=_request_headers(credential),
        hidden_words=tuple(dict.fromkeys(_hidden_words(vendor, credential))),
    )


def _hidden_words(vendor: Vendor, credential: str) -> Iterator[str]:
    """The vendor's names: its own, its address, its host, and the domain that this belongs to."""
    parts = urlsplit(vendor.base_url)
    host = parts.hostname or ""
    yield from filter(None, (vendor.name, vendor.base_url, parts.netloc, host, credential))
    domain = host.partition(".")[2]
    if "." in domain and not domain.replace(".", "").isdigit():
        yield domain


def _request_headers(credential: str) -> tuple[tuple[bytes, bytes], ...]:
    """Without a credential no header is sent for it: a local server may refuse any."""
    authorization = ((b"authorization", f"Bearer {credential}".encode()),) if credential else ()
    return (
        *authorization,
        (b"content-type", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"user-agent", USER_AGENT),
    )


def _route(route: Route, vendor: VendorAccess, correction: Correction | None) -> RouteTo:
    return RouteTo(
        vendor, route.vendor_model, route.family, route.priority, route.weight, correction
    )


def _public(
    model: Model,
    routes: list[RouteTo],
    test_route: RouteTo | None,
) -> PublicModel:
    return PublicModel(
        name=model.name,
        family=model.family,
        context_tokens=model.context_tokens,
        max_output_tokens=model.max_output_tokens,
        default_output_tokens=model.default_output_tokens,
        created_s=int(model.created_at.timestamp()),
        routes=tuple(routes),
        test_route=test_route,
        sticky_routes=model.sticky_routes,
    )


def _plain_echo(test_vendor: VendorAccess | None) -> RouteTo | None:
    """A test key's route for a model that does not live at benchecho; one that does keeps its."""
    if test_vendor is None:
        return None
    return RouteTo(test_vendor, TEST_VENDOR_MODEL, None, priority=0, weight=1)

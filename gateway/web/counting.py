"""Our counts beside the vendors' own: what each night found, and corrections that staff decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from billing.corrections import all_in_force, decide, of_model, withdraw
from billing.errors import BadCorrectionAct, CorrectionDecided
from billing.estimation import family_of
from billing.estimation.learning import SAMPLE_MIN
from billing.models import CorrectionState, CountComparison, CountCorrection
from gateway.web.operator import render_staff, staff_act, staff_page
from keys.models import AuditEvent, User
from keys.services import REASON_LENGTH_MAX

PREFIX: Final = "corr_"
DIGITS_MAX: Final = 18
NIGHTS: Final = 14
ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class SideView:
    """One side of a comparison; errors are percentages with one decimal, `bias` with its sign."""

    sample_size: int
    median: str
    p95: str
    bias: str


@dataclass(frozen=True, slots=True)
class ComparisonView:
    comparison: CountComparison
    prompt: SideView | None
    completion: SideView | None
    in_force: CountCorrection | None = None
    proposed: CountCorrection | None = None

    @property
    def family(self) -> str:
        return family_of("", self.comparison.family).title

    @property
    def is_small(self) -> bool:
        """Too few to flag or to propose anything."""
        sizes = [side.sample_size for side in (self.prompt, self.completion) if side is not None]
        return max(sizes, default=0) < SAMPLE_MIN


@require_safe
@staff_page
def index(request: HttpRequest) -> HttpResponseBase:
    newest = (
        CountComparison.objects.select_related("correction")
        .order_by("vendor", "vendor_model", "-day")
        .distinct("vendor", "vendor_model")
    )
    proposals = {
        (row.vendor, row.vendor_model): row
        for row in CountCorrection.objects.filter(state=CorrectionState.PROPOSED)
    }
    held = all_in_force()
    views = [_view(row, held, proposals) for row in newest[:ROWS]]
    views.sort(key=lambda view: (not view.comparison.is_drifting, view.proposed is None))
    context = {"views": views, "sample_min": SAMPLE_MIN, "as_of": timezone.now()}
    return render_staff(request, "staff/counting.html", context)


@require_safe
@staff_page
def correction(request: HttpRequest, public_id: str) -> HttpResponseBase:
    return _page(request, _found(public_id))


@require_POST
@staff_act
def act(request: HttpRequest, public_id: str, act: str) -> HttpResponseBase:
    """Accept, decline or withdraw, with a reason; where it is too late, nothing is done."""
    row = _found(public_id)
    assert isinstance(request.user, User)  # noqa: S101  # staff_act let nobody else in
    actor, reason = request.user.email, request.POST.get("reason", "")
    try:
        if act == "withdraw":
            withdraw(row.pk, actor=actor, reason=reason)
        elif act in {"accept", "decline"}:
            decide(row.pk, accepts=act == "accept", actor=actor, reason=reason)
        else:
            raise Http404
    except CorrectionDecided as refusal:
        row.refresh_from_db()
        return _page(request, row, refusal=str(refusal), status=HTTPStatus.CONFLICT)
    except BadCorrectionAct as refusal:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return _page(request, row, reason_error=str(refusal), status=status)
    return redirect("counting-correction", public_id)


def _page(
    request: HttpRequest,
    row: CountCorrection,
    *,
    refusal: str = "",
    reason_error: str = "",
    status: int = HTTPStatus.OK,
) -> HttpResponseBase:
    held = all_in_force().get((row.vendor, row.vendor_model))
    nights = CountComparison.objects.filter(vendor=row.vendor, vendor_model=row.vendor_model)
    versions = of_model(row.vendor, row.vendor_model)
    context = {
        "correction": row,
        "family": family_of("", row.family).title,
        "lines": _lines(row),
        "is_proposed": row.state == CorrectionState.PROPOSED,
        "is_in_force": held is not None and held.pk == row.pk and row.sample_size > 0,
        "in_force": held,
        "nights": [_view(night, {}, {}) for night in nights.order_by("-day")[:NIGHTS]],
        "versions": versions[:NIGHTS],
        "history": AuditEvent.objects.filter(tenant_id=None, subject=row.public_id).order_by("pk"),
        "reason": request.POST.get("reason", ""),
        "reason_error": reason_error,
        "reason_max": REASON_LENGTH_MAX,
        "refusal": refusal,
        "as_of": timezone.now(),
    }
    return render_staff(request, "staff/correction.html", context, status)


@dataclass(frozen=True, slots=True)
class Line:
    """What becomes of a count of ours; `example` of one of a thousand tokens."""

    side: str
    factor: str
    offset: str
    example: int
    left: str


def _lines(row: CountCorrection) -> Sequence[Line]:
    sides = (
        ("Prompt", row.prompt_per_mille, row.prompt_offset, row.prompt_error),
        ("Completion", row.completion_per_mille, row.completion_offset, row.completion_error),
    )
    return [
        Line(
            side,
            factor=f"{per_mille / 1000:.3f}",
            offset=f"{offset:+d}" if offset else "0",
            example=max(per_mille + offset, 0),
            left="–" if error is None else _percent(error),
        )
        for side, per_mille, offset, error in sides
    ]


def _view(
    row: CountComparison,
    held: dict[tuple[str, str], CountCorrection],
    proposals: dict[tuple[str, str], CountCorrection],
) -> ComparisonView:
    key = (row.vendor, row.vendor_model)
    return ComparisonView(
        row, _side(row.prompt), _side(row.completion), held.get(key), proposals.get(key)
    )


def _side(kept: dict[str, Any] | None) -> SideView | None:
    if kept is None:
        return None
    return SideView(
        sample_size=kept["sample_size"],
        median=_percent(Decimal(kept["median_error"])),
        p95=_percent(Decimal(kept["p95_error"])),
        bias=f"{Decimal(kept['bias']) * 100:+.1f} %",
    )


def _percent(fraction: Decimal) -> str:
    return f"{fraction * 100:.1f} %"


def _found(public_id: str) -> CountCorrection:
    """Raises Http404."""
    digits = public_id.removeprefix(PREFIX)
    is_name = digits != public_id and digits.isascii() and digits.isdigit()
    if not is_name or len(digits) > DIGITS_MAX:
        raise Http404
    row = CountCorrection.objects.filter(pk=int(digits)).first()
    if row is None:
        raise Http404
    return row

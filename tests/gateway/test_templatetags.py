"""How figures, moments and states are printed, and what the templates may not contain."""

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from django.template import Template
from django.template.context import Context
from django.template.loader import render_to_string
from django.utils.html import strip_tags
from hypothesis import given
from hypothesis import strategies as st

from gateway.templatetags import farthing
from tests.gateway.gallery import ICONS, gallery_context

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
MOMENT = datetime(2026, 12, 1, 14, 11, 48, 407_900, tzinfo=UTC)


def rendered(source: str, **context: object) -> str:
    return Template(source).render(Context(context))


# --- money --------------------------------------------------------------------------------------


def test_money_prints_nine_decimals_in_threes_and_the_last_six_lighter_from_a_cent_on():
    assert farthing.money(370_867_366_417) == (
        '<data class="money large" value="370.867366417">'
        "370.867<span>366</span><span>417</span></data>"
    )


def test_money_below_a_cent_is_all_in_full_ink():
    assert farthing.money(987_751) == (
        '<data class="money" value="0.000987751">0.000<span>987</span><span>751</span></data>'
    )


@pytest.mark.parametrize(("nanos", "is_large"), [(9_999_999, False), (10_000_000, True)])
def test_money_turns_lighter_at_exactly_a_cent(nanos, is_large):
    assert ("money large" in farthing.money(nanos)) is is_large
    assert ("money large" in farthing.money(-nanos)) is is_large


def test_money_in_the_other_direction_has_a_true_minus_and_no_brackets():
    assert strip_tags(farthing.money(-20_000_000_000)) == f"{MINUS}20.000000000"


def test_zero_is_printed_and_absence_is_a_dash():
    assert strip_tags(farthing.money(0)) == "0.000000000"
    assert [shown(None) for shown in (farthing.money, farthing.money2, farthing.price)] == [
        DASH
    ] * 3


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_a_copy_of_money_is_the_number_itself(nanos):
    copied = strip_tags(farthing.money(nanos)).replace(",", "").replace(MINUS, "-")
    assert Decimal(copied) * 1_000_000_000 == nanos


@pytest.mark.parametrize(
    ("nanos", "shown"),
    [
        (0, "0.00"),
        (5_000_000, "0.01"),
        (4_999_999, "0.00"),
        (-4_999_999, "0.00"),
        (-5_000_000, f"{MINUS}0.01"),
        (159_104_352_436, "159.10"),
        (21_904_120_000_000, "21,904.12"),
    ],
)
def test_money2_rounds_half_away_from_zero_and_never_shows_a_negative_zero(nanos, shown):
    assert strip_tags(farthing.money2(nanos)) == shown


def test_money2_keeps_the_exact_value_as_title():
    assert 'title="-0.005000000"' in farthing.money2(-5_000_000)


def test_held_money_says_so():
    assert strip_tags(farthing.held(6_563_966)) == "held 0.006563966"


def test_exact_keeps_the_half_nano_and_pads_to_nine_decimals():
    shown = farthing.exact(1843, 279_500_000)
    assert strip_tags(shown) == "0.0005151185"
    assert shown.endswith("<span>118</span><span>5</span></data>")
    assert strip_tags(farthing.exact(0, 279_500_000)) == "0.000000000"
    assert strip_tags(farthing.exact(1_000_000, 1_000_000_000_000)) == "1,000.000000000"


@given(st.integers(0, 10**9), st.integers(0, 10**12))
def test_exact_is_exact(quantity, price_nanos):
    shown = strip_tags(farthing.exact(quantity, price_nanos)).replace(",", "")
    assert Fraction(shown) == Fraction(quantity * price_nanos, 10**15)


def test_price_has_six_decimals_or_as_many_more_as_it_has():
    assert strip_tags(farthing.price(279_500_000)) == "0.279500"
    assert strip_tags(farthing.price(12_500)) == "0.0000125"
    assert strip_tags(farthing.price(2_000_000_000)) == "2.000000"


# --- counts and moments -------------------------------------------------------------------------


def test_counts_have_thousands_and_a_true_minus():
    assert [farthing.count(number) for number in (0, 2184, -1000, None)] == [
        "0",
        "2,184",
        f"{MINUS}1,000",
        DASH,
    ]


def test_an_estimated_count_is_marked_for_eye_and_ear():
    assert farthing.estimated(11_204).endswith("</span>11,204")
    assert 'aria-label="estimated"' in farthing.estimated(11_204)
    assert farthing.estimated(None) == DASH


def test_durations_name_their_unit_and_change_it_at_a_second():
    assert [farthing.took(value) for value in (703, 999.4, 1000, 4860, None)] == [
        "703 ms",
        "999 ms",
        "1.00 s",
        "4.86 s",
        DASH,
    ]
    assert farthing.ms(4158.4) == "4,158.4"


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("full", "2026-12-01 14:11:48.407"),
        ("second", "2026-12-01 14:11:48"),
        ("minute", "2026-12-01 14:11"),
        ("ms", "14:11:48.407"),
        ("time", "14:11:48"),
        ("clock", "14:11"),
        ("day", "1 Dec 2026"),
        ("date", "1 December 2026"),
        ("weekday", "Tuesday 1 December 2026"),
        ("crumb", "1 December, 14:11:48"),
    ],
)
def test_moments_are_printed_in_utc_with_the_whole_as_title(form, shown):
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=-5)))
    assert farthing.utc(elsewhere, form) == (
        '<time datetime="2026-12-01T14:11:48.407Z" title="2026-12-01 14:11:48.407 UTC">'
        f"{shown}</time>"
    )


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="without a zone"):
        farthing.utc(MOMENT.replace(tzinfo=None))


# --- words --------------------------------------------------------------------------------------


def test_long_names_are_cut_in_the_middle_with_the_whole_as_title():
    name = "qwen2.5-coder-1.5b-free-g7"
    assert farthing.middle(name, 16) == f'<span title="{name}">qwen2.5…-free-g7</span>'
    assert farthing.middle("gpt-5-mini", 16) == "gpt-5-mini"


def test_names_from_users_are_escaped():
    assert "<b>" not in farthing.middle("<b>" * 20)
    assert "<b>" not in rendered(
        '{% note "bad" cause %}{{ body }}{% endnote %}', cause="<b>", body="<b>"
    )


@pytest.mark.parametrize(
    ("name", "shown"), [("Acme Robotics", "AR"), ("acme", "AC"), ("A B C", "AB"), ("", "")]
)
def test_initials(name, shown):
    assert farthing.initials(name) == shown


def test_icons_are_hidden_from_screen_readers_unless_they_say_something():
    assert farthing.icon("key") == (
        '<svg class="icon icon-key" aria-hidden="true"><use href="/static/icons.svg#key"/></svg>'
    )
    assert 'role="img" aria-label="to"' in farthing.icon("arrow", "to")


def test_every_state_has_an_icon_that_exists_and_a_tone_of_its_own_word():
    tones = {"ok", "wait", "info", "warn", "bad", "off"}
    assert {look.icon for look in farthing.STATES.values()} <= set(ICONS)
    assert {look.tone for look in farthing.STATES.values()} <= tones


def test_a_status_shows_its_word_or_the_given_text():
    assert strip_tags(farthing.status("settled")) == "Settled"
    assert strip_tags(farthing.status("failed", "Failed 503")) == "Failed 503"
    assert strip_tags(farthing.status("some_new_state")) == "Some new state"
    assert 'class="status info pill"' in farthing.status("at_estimate", pill=True)


def test_a_note_shows_its_request_id_or_its_act():
    with_id = rendered('{% note "bad" "Cut" request_id="req_1" %}You pay nothing.{% endnote %}')
    assert "<code>req_1</code>" in with_id
    assert 'role="alert"' in with_id
    with_act = rendered('{% note "warn" "Low" url="/billing" act="Top up" %}Soon.{% endnote %}')
    assert 'href="/billing">Top up</a>' in with_act


def test_an_empty_state_has_at_most_one_next_step():
    assert rendered('{% nothing "No keys" %}None.{% endnothing %}').count("<a ") == 0
    assert (
        rendered('{% nothing "No keys" "/new" "Create" %}None.{% endnothing %}').count("<a ") == 1
    )


# --- the templates themselves -------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["live", "test", "staff"])
def test_the_gallery_renders_without_anything_the_content_policy_forbids(mode):
    page = render_to_string("components/gallery.html", gallery_context() | {"mode": mode})
    assert f"<b>{mode.upper()}</b>" in page
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|https?://(?!llm\.|api\.)", page)
    assert all("src=" in script for script in re.findall(r"<script[^>]*>", page))


@pytest.mark.parametrize("name", ["400", "403", "403_csrf", "404", "500"])
def test_error_pages_need_no_context_and_say_that_nothing_is_charged_or_done(name):
    page = render_to_string(f"{name}.html")
    assert "<h1>" in page
    assert re.search(r"[Nn]othing (was|is) (done|charged)|pay nothing", page)


def test_templates_name_only_icons_of_the_sprite():
    sources = [path.read_text(encoding="utf-8") for path in TEMPLATES.rglob("*.html")]
    named = {name for source in sources for name in re.findall(r'{% icon "([a-z-]+)"', source)}
    assert named <= set(ICONS)
    assert set(farthing.NOTE_ICONS.values()) <= set(ICONS)


def test_no_template_carries_inline_style_or_script():
    for path in TEMPLATES.rglob("*.html"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|<style|<script(?![^>]*src=)", source), path

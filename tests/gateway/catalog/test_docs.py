import re
from pathlib import Path

import gateway
from gateway.catalog import schema
from gateway.catalog.file import parse

GUIDE = Path(gateway.__file__).parents[1] / "docs" / "catalog.md"


def test_example_of_the_guide_can_be_read():
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    catalog = parse(example.encode(), {"ACME_KEY": "vk-1"})
    assert [vendor.name for vendor in catalog.vendors] == ["acme", "cellar"]
    assert [model.name for model in catalog.models] == ["acme-small", "acme-free"]


def test_guide_names_every_key():
    tables = (
        schema.VENDOR_KEYS,
        schema.MODEL_KEYS,
        schema.ROUTE_KEYS,
        schema.PRICE_KEYS,
        schema.TIER_KEYS,
        schema.PLAN_KEYS,
        schema.TERMS_KEYS,
        schema.SPEND_LIMIT_KEYS,
    )
    guide = GUIDE.read_text()
    assert [name for table in tables for name in table if f"`{name}`" not in guide] == []

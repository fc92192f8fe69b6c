from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Image, Picture
from lockpin_core.sizing.images import image_tokens, picture_tokens


@dataclass(frozen=True)
class Rule:
    kind: str
    numbers: Mapping[str, Decimal] = field(default_factory=dict)


def rule(kind: str, **numbers: str) -> Rule:
    return Rule(kind, {name: Decimal(text) for name, text in numbers.items()})


OLDER, LARGE = rule("anthropic"), rule("anthropic_large")
TILES = rule("openai_tiles", base="85", tile="170")
PATCHES = rule("openai_patches", multiplier="1.62", patches="1536")
GEMINI, RESOLUTION, FIXED = rule("gemini_tiles", tile="258"), rule("gemini_resolution"), rule("fixed", tokens="1120")
RULES = (OLDER, LARGE, TILES, PATCHES, GEMINI, RESOLUTION, FIXED)
SIDES = st.integers(1, 12_000)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        # 200 × 200 / 750 = 53.3 → 54, but 8 × 8 patches are 64; a twentieth (4) and 16 come on top.
        ((200, 200), 64 + 4 + 16),
        # 1000 × 1000 / 750 = 1333.3 → 1334; 36 × 36 patches are 1296; a twentieth is 66.7 → 67.
        ((1000, 1000), 1334 + 67 + 16),
        # brought to 1568 × 157: 246,176 / 750 = 328.2 → 329; 56 × 6 patches are 336; a twentieth is 16.8 → 17.
        ((3136, 313), 336 + 17 + 16),
        ((1, 1), 1 + 1 + 16),
    ],
)
def test_anthropic_counts_pixels(size: tuple[int, int], tokens: int):
    assert image_tokens(Image(*size), OLDER, None) == tokens


def test_the_larger_anthropic_models_take_longer_sides():
    # 2576 × 100: 257,600 / 750 = 343.5 → 344; 92 × 4 patches are 368; a twentieth is 18.4 → 19.
    assert image_tokens(Image(2576, 100), LARGE, None) == 368 + 19 + 16
    assert image_tokens(Image(2000, 2000), LARGE, 4_784) == 4_784
    assert image_tokens(Image(2000, 2000), OLDER, 1_600) == 1_600


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        ((1024, 1024), "high", 85 + 4 * 170),  # the guide's own examples: 768 × 768
        ((2048, 4096), "high", 85 + 6 * 170),  # 768 × 1536
        ((4096, 8192), "low", 85),
        ((None, None), "low", 85),
        ((768, 2048), "", 85 + 8 * 170),
        ((512, 512), "auto", 85 + 4 * 170),  # one tile, or four where it is made larger
        ((5000, 100), "high", 85 + 75 * 2 * 170),  # 2048 × 41, or 768 high and 38,363 wide
    ],
)
def test_openai_counts_tiles(size: tuple[int, int], detail: str, tokens: int):
    assert image_tokens(Image(*size, detail), TILES, None) == tokens


def test_tiles_are_never_above_the_ceiling():
    assert image_tokens(Image(5000, 100, "high"), TILES, 1_445) == 1_445


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        ((1024, 1024), "", 1659),  # 1024 patches × 1.62 = 1658.9
        ((33, 32), "high", 4),  # 2 patches
        ((1800, 2400), "high", 2489),  # 57 × 75 patches, cut to 1536; × 1.62 = 2488.3
        ((1800, 2400), "original", 6926),  # 4275 × 1.62 = 6925.5
        ((1800, 2400), "auto", 6926),
    ],
)
def test_openai_counts_patches(size: tuple[int, int], detail: str, tokens: int):
    assert image_tokens(Image(*size, detail), PATCHES, None) == tokens
    assert image_tokens(Image(*size, detail), PATCHES, 2_489) == min(tokens, 2_489)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((384, 384), 258),
        ((384, 385), 258 * 2 * 2),  # tiles of 256
        ((960, 540), 258 * 3 * 2),  # the guide's own example: tiles of 360
        ((3000, 3000), 258 * 4 * 4),  # tiles of 768
    ],
)
def test_gemini_counts_tiles(size: tuple[int, int], tokens: int):
    assert image_tokens(Image(*size), GEMINI, None) == tokens


@pytest.mark.parametrize(
    ("detail", "tokens"),
    [("", 1120), ("MEDIA_RESOLUTION_LOW", 280), ("medium", 560), ("MEDIA_RESOLUTION_ULTRA_HIGH", 2240), ("new", None)],
)
def test_gemini_counts_by_the_resolution_that_is_asked_for(detail: str, tokens: int | None):
    assert image_tokens(Image(detail=detail), RESOLUTION, None) == tokens


def test_fixed_number_holds_unless_more_is_asked_for():
    assert image_tokens(Image(9000, 9000), FIXED, 2_240) == 1_120
    assert image_tokens(Image(9000, 9000, "MEDIA_RESOLUTION_ULTRA_HIGH"), FIXED, 2_240) == 2_240


@pytest.mark.parametrize("image_rule", [*RULES[:2], *RULES[3:5], None, rule("brand_new")])
def test_image_of_an_unknown_size_takes_the_ceiling(image_rule: Rule | None):
    assert image_tokens(Image(), image_rule, 900) == 900
    assert image_tokens(Image(), image_rule, None) is None
    assert image_tokens(Image(1 << 30, 5), image_rule, 900) == 900


@given(st.sampled_from(RULES), SIDES, SIDES, st.integers(0, 900), st.integers(0, 900), st.integers(1, 9_000))
def test_no_rule_passes_the_ceiling(image_rule, width, height, more_width, more_height, ceiling):
    found = image_tokens(Image(width, height), image_rule, ceiling)

    assert found is not None
    assert 1 <= found <= ceiling


@given(SIDES, SIDES)
def test_turning_an_image_changes_nothing(width, height):
    for image_rule in RULES:
        one, other = (image_tokens(Image(*size), image_rule, None) for size in ((width, height), (height, width)))
        assert one == other


@given(SIDES, SIDES)
def test_anthropic_bound_is_above_the_published_arithmetic(width, height):
    for image_rule, longest in ((OLDER, 1568), (LARGE, 2576)):
        scale = min(1, longest / max(width, height))
        found = image_tokens(Image(width, height), image_rule, None)
        assert found is not None
        assert found >= width * scale * height * scale / 750


GRID = rule("openai_grid", low="16", medium="48", high="96", pixels="8294400")


@pytest.mark.parametrize(
    ("size", "quality", "tokens"),
    [
        # By the provider's calculator, and by bills, as its forum has them.
        ((1024, 1024), "high", 7_024),
        ((1536, 1024), "high", 5_488),
        ((1792, 1024), "high", 5_063),
        ((3584, 2048), "high", 12_329),
        ((960, 720), "low", 130),
        ((976, 704), "low", 129),
        # 48 × 48 × 3,048,576 / 4,000,000 and 16 × 16 × the same
        ((1024, 1024), "medium", 1_756),
        ((1024, 1024), "low", 196),
        ((2880, 2880), "high", 23_719),  # 96 × 96 × 10,294,400 / 4,000,000: no picture is larger
        ((1024, 1024), "", 7_024),
        ((1024, 1024), "auto", 7_024),
        ((1024, 1024), "max", 7_024),
        ((None, None), "high", 23_719),
        ((None, None), "auto", 23_719),
        ((None, None), "low", 659),  # 16 × 16 × 10,294,400 / 4,000,000
        ((0, 0), "low", 659),
        ((1 << 21, 1), "low", 659),
        ((9_000, 9_000), "high", 23_719),
        ((3_840, 16), "low", 9),  # one cell across at least
    ],
)
def test_openai_draws_a_grid_that_grows_with_the_area(size, quality: str, tokens: int):
    assert picture_tokens(Picture(*size, quality), GRID, None) == tokens
    assert picture_tokens(Picture(*size, quality), GRID, 1_000) == min(tokens, 1_000)


@pytest.mark.parametrize("picture_rule", [None, rule("brand_new"), FIXED])
def test_a_picture_without_a_rule_takes_the_models_most(picture_rule: Rule | None):
    assert picture_tokens(Picture(1024, 1024, "low"), picture_rule, 8_000) == 8_000
    assert picture_tokens(Picture(1024, 1024, "low"), picture_rule, None) is None


@given(SIDES, SIDES, st.sampled_from(["low", "medium", "high", "", "max"]))
def test_no_picture_takes_more_than_the_largest(width, height, quality):
    largest = picture_tokens(Picture(quality=quality), GRID, None)
    found = picture_tokens(Picture(width, height, quality), GRID, None)

    assert found is not None
    assert largest is not None
    assert 1 <= found <= largest
    assert found == picture_tokens(Picture(height, width, quality), GRID, None)

"""The labels of a scatter plot: each beside its point, none over a point or over another label."""

import itertools
import random
import re

import pytest
from pytest import approx

from tokenpo.lab.page.chart import DOT, FOOT, LEFT, LETTER, TOP, WIDTH, Cloud, _beside, scale, scatter


@pytest.mark.parametrize("seed", range(5))
def test_labels_cover_no_point_and_no_label(seed: int) -> None:
    rng = random.Random(seed)
    points = [(rng.gauss(150, 12), rng.gauss(90, 10)) for _ in range(15)]
    places = list(_beside([(x, y, 45.0) for x, y in points[:8]], points))
    boxes = [(left, right, y - LETTER, y + LETTER) for left, right, y in places]
    assert all(a >= LEFT and b <= WIDTH and c >= TOP and d <= FOOT for a, b, c, d in boxes)
    dots = [(x - DOT, x + DOT, y - DOT, y + DOT) for x, y in points]
    for box, other in (*itertools.combinations(boxes, 2), *itertools.product(boxes, dots)):
        assert box[1] <= other[0] or other[1] <= box[0] or box[3] <= other[2] or other[3] <= box[2]


def labels(svg: str, axis: str) -> list[str]:
    return re.findall(f'class="tick {axis}"[^>]*>([^<]*)<', svg)


def test_labels_of_an_axis_differ_however_near_its_ends_are() -> None:
    svg = scatter([Cloud("a", [(0.0012345, 0.50121, "")], "c0"), Cloud("b", [(0.0012348, 0.50155, "")], "c0")], "x", "")
    for axis in "xy":
        assert len(labels(svg, axis)) > 2 and len(set(labels(svg, axis))) == len(labels(svg, axis))


def test_a_logarithmic_scale_places_numbers_down_to_its_lowest_mark() -> None:
    px = scale(1e-14, 1e-10, 0.0, 4.0, log=True)
    assert [px(x) for x in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-10)] == approx([0, 0, 0, 1, 2, 4])

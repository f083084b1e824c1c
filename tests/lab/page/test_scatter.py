"""The labels of a scatter plot: each beside its point, none over a point or over another label."""

import itertools
import random
import re

import pytest
from pytest import approx

from tokenpo.lab.page.chart import (
    DOT,
    END,
    FOOT,
    LEFT,
    LETTER,
    LONGEST,
    NEAR,
    TOP,
    WIDTH,
    Cloud,
    _beside,
    scale,
    scatter,
)


def test_a_point_alone_has_its_label_to_the_right() -> None:
    ((left, right, middle),) = _beside([(100.0, 80.0, 50.0)], [(100.0, 80.0)])
    assert (left, right, middle) == (100 + NEAR, 100 + NEAR + 50, 80)


def test_a_point_at_the_right_edge_has_it_to_the_left() -> None:
    ((left, right, _),) = _beside([(END - 1.0, 80.0, 50.0)], [(END - 1.0, 80.0)])
    assert right == approx(END - 1 - NEAR) and right - left == approx(50)


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


def test_only_a_label_that_had_to_move_away_has_a_line() -> None:
    alone = scatter([Cloud("a", [(1.0, 0.0, "")], "c0"), Cloud("", [(10.0, 1.0, "")], "c0")], "x", "name")
    crowd = [Cloud(f"method {i}", [(1.0 + i / 1000, 0.5 + i / 1000, "")], "c0") for i in range(9)]
    assert "lead" not in alone
    assert 'class="lead"' in scatter([*crowd, Cloud("", [(10.0, 1.0, "")], "c0")], "x", "name")


def labels(svg: str, axis: str) -> list[str]:
    return re.findall(f'class="tick {axis}"[^>]*>([^<]*)<', svg)


def test_labels_of_an_axis_differ_however_near_its_ends_are() -> None:
    svg = scatter([Cloud("a", [(0.0012345, 0.50121, "")], "c0"), Cloud("b", [(0.0012348, 0.50155, "")], "c0")], "x", "")
    for axis in "xy":
        assert len(labels(svg, axis)) > 2 and len(set(labels(svg, axis))) == len(labels(svg, axis))


def test_a_long_label_is_shortened_in_its_middle_and_stays_in_the_plot() -> None:
    long = ["grpo:clip_low=0.2,clip_high=0.28,beta=0.001, train.lr=" + rate for rate in ("0.0001", "0.0003")]
    svg = scatter([Cloud(long[0], [(1.0, 0.5, "")], "c0"), Cloud(long[1], [(2.0, 0.6, "")], "c0")], "x", "name")
    found = re.findall(r'text-anchor="middle" x="([\d.]+)"[^>]*><title>([^<]*)</title>([^<]*)<', svg)
    assert sorted(title for _, title, _ in found) == long
    for x, title, shown in found:
        assert len(shown) == LONGEST and title.startswith(shown.split("…")[0]) and title.endswith(shown.split("…")[1])
        assert float(x) - 2.75 * LONGEST >= LEFT and float(x) + 2.75 * LONGEST <= WIDTH


def test_a_label_without_a_free_place_is_in_the_plot_all_the_same() -> None:
    everywhere = [(float(x), float(y)) for x in range(LEFT, WIDTH, 4) for y in range(TOP, FOOT, 4)]
    for x in range(LEFT, END, 20):
        ((left, right, y),) = _beside([(x, TOP + 2.0, 5.5 * LONGEST)], everywhere)
        assert left >= LEFT and right <= WIDTH and y - LETTER >= TOP and y + LETTER <= FOOT


def test_a_logarithmic_scale_places_numbers_down_to_its_lowest_mark() -> None:
    px = scale(1e-14, 1e-10, 0.0, 4.0, log=True)
    assert [px(x) for x in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-10)] == approx([0, 0, 0, 1, 2, 4])

"""The labels of a scatter plot: each beside its point, none over a point or over another label."""

import itertools
import random

import pytest
from pytest import approx

from tokenpo.page.chart import DOT, END, FOOT, LEFT, LETTER, NEAR, TOP, WIDTH, Cloud, _beside, scatter


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

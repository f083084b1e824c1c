"""`tokenpo exact` as a user calls it: sentences, tables and numbers; a method of one's own is one more row."""

import json

import pytest

from tokenpo.cli.main import main
from tokenpo.lab.exact import measures
from tokenpo.lab.exact.measures import MEASURES, Number

MINE = """
import tokenpo

def still():
    return tokenpo.method("dapo", high=0.0)
"""


def test_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measures, "REPLICATES", 2)
    monkeypatch.setattr(measures, "POPULATION", 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    assert main(["exact", "mine.py:still", "--world", "two_modes,free_length", "--json", "all.json"]) == 0
    found = json.loads((tmp_path / "all.json").read_text())
    assert list(found) == ["dapo", "still", "perfect credit"]
    assert all(list(row) == ["two_modes", "free_length"] for row in found.values())
    assert set(found["still"]["two_modes"]) == set(MEASURES)
    # On policy the clip does nothing; after a drift up the gradient it leaves less than DAPO's.
    assert found["still"]["two_modes"]["progress"] == found["dapo"]["two_modes"]["progress"]
    assert found["still"]["two_modes"]["moved"][0] < found["dapo"]["two_modes"]["moved"][0]
    assert found["perfect credit"]["two_modes"]["progress"][0] > found["dapo"]["two_modes"]["progress"][0]
    out = capsys.readouterr().out
    assert out.startswith("still beside DAPO, in 2 worlds: cosine above in 0 and below in 0")
    assert "free length" in out and "numbers: all.json" in out


@pytest.mark.parametrize(
    ("value", "error", "above", "below"), [(0.6, 0.01, 1, 0), (0.4, 0.01, 0, 1), (0.52, 0.01, 0, 0), (0.6, 0.06, 0, 0)]
)
def test_a_sentence_counts_what_is_beyond_two_standard_errors(value, error, above, below):
    """Of the difference from 0.5 ± 0.01, in one world."""

    def row(x: Number) -> dict[str, dict[str, Number]]:
        return {"a": dict.fromkeys(MEASURES, x)}

    results = {"dapo": row(Number(0.5, 0.01)), "late": row(Number(value, error)), "perfect credit": row(Number(1, 0))}
    (told,) = measures.verdicts(results, ["a"])
    assert told.startswith(
        f"late beside DAPO, in 1 world: cosine above in {above} and below in {below}; progress above"
    )

"""Rollouts that are a function of their place: the same in every process, for TRL and for the reference."""

import random

GROUP = 4
LONGEST = 9
PROMPTS = 24


def prompts() -> list[str]:
    return [f"{i}+{i % 7}=" for i in range(PROMPTS)]


def completion(batch: int, row: int) -> list[int]:
    """Token ids of a row of a rollout batch; ragged."""
    draw = random.Random(1000 * batch + row)
    return [draw.randrange(3, 259) for _ in range(draw.randint(1, LONGEST))]


def reported(batch: int, row: int) -> list[float]:
    """What an engine that samples might say of them, nats."""
    draw = random.Random(7 + 1000 * batch + row)
    return [-draw.uniform(2.0, 6.0) for _ in completion(batch, row)]


def sums(completion_ids: list[list[int]], **columns: object) -> list[float]:
    return [float(sum(ids) % 3 == 0) for ids in completion_ids]


def lengths(completion_ids: list[list[int]], **columns: object) -> list[float | None]:
    """Does not apply to one in five."""
    return [None if ids[0] % 5 == 0 else len(ids) / LONGEST for ids in completion_ids]


def seldom(completion_ids: list[list[int]], **columns: object) -> list[float | None]:
    """Alone, it leaves rows that nobody scored."""
    return [None if ids[0] % 4 == 0 else float(sum(ids) % 2) for ids in completion_ids]


WEIGHTS = [1.0, 0.5]


def total(ids: list[int], names: list[str]) -> float | None:
    """The reward of a row, None where no function applies."""
    functions = {"sums": (sums, WEIGHTS[0]), "lengths": (lengths, WEIGHTS[1]), "seldom": (seldom, 1.0)}
    said = [(functions[name][0]([ids])[0], functions[name][1]) for name in names]
    known = [value * weight for value, weight in said if value is not None]
    return sum(known) if known else None

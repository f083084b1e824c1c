"""The worlds: a world is added here, as one function and one line of the table at the end.

Fillers are states whose token does not matter. No two of them are equally sure: methods that rank tokens by entropy
would otherwise hang on how ties are broken.
"""

from __future__ import annotations

from collections.abc import Callable

from .world import State, World, between, falling, fillers, first

THIRD = (1 / 3, 1 / 3, 1 / 3)
ENTROPY = "credit belongs where the policy is uncertain"
RARE = "improbable tokens are noise that dominates the gradient"


def fork_sure_filler() -> World:
    before, right, wrong = (between(*span) for span in ((0.93, 0.95, 2), (0.95, 0.98, 3), (0.90, 0.93, 3)))
    return World(
        "fork_sure_filler", ENTROPY, True,
        "Six tokens, of which the third decides; it is a toss-up, the others are nearly certain.",
        (
            *fillers("before", before, 3, "fork"),
            State("fork", THIRD, ("right1", "wrong1", "wrong1")),
            *fillers("right", right, 3, 1.0),
            *fillers("wrong", wrong, 3, 0.0),
        ),
        {"before1": 1.0},
    )  # fmt: skip


def sure_fork_filler() -> World:
    before, right, wrong = (between(*span) for span in ((0.40, 0.44, 2), (0.44, 0.50, 3), (0.50, 0.56, 3)))
    return World(
        "sure_fork_filler", ENTROPY, False,
        "Six tokens, of which the third decides; it is sure of a wrong one, the others are open.",
        (
            *fillers("before", before, 3, "fork"),
            State("fork", (0.08, 0.86, 0.06), ("right1", "wrong1", "wrong1")),
            *fillers("right", right, 3, 1.0),
            *fillers("wrong", wrong, 3, 0.0),
        ),
        {"before1": 1.0},
    )  # fmt: skip


def wandering_fork() -> World:
    return _wandering(
        "wandering_fork", True, "The first token sends the decision to one of four places; it is a toss-up, the "
        "others are nearly certain.", (0.25, 0.28, 0.25, 0.22), (0.90, 0.98),
    )  # fmt: skip


def wandering_sure() -> World:
    return _wandering(
        "wandering_sure", False, "The first token sends the decision to one of four places; it is sure of a wrong one, "
        "the others are open.", (0.08, 0.82, 0.06, 0.04), (0.35, 0.55),
    )  # fmt: skip


def _wandering(name: str, holds: bool, about: str, fork: tuple[float, ...], span: tuple[float, float]) -> World:
    """Token k of the first state leads to a path with k fillers, the fork, and 3 - k fillers."""
    sure, states, entries = iter(between(*span, 18)), [], []
    for k in range(4):
        place = f"path{k}fork"
        before, right, wrong = (
            fillers(f"path{k}{side}", [next(sure) for _ in range(count)], 4, to)
            for side, count, to in (("before", k, place), ("right", 3 - k, 1.0), ("wrong", 3 - k, 0.0))
        )
        entries.append(first(before, place))
        states += [*before, State(place, fork, (first(right, 1.0), *[first(wrong, 0.0)] * 3)), *right, *wrong]
    gate = State("gate", (0.3, 0.27, 0.23, 0.2), tuple(entries))
    premise = f"{ENTROPY}, wherever in the response that is"
    return World(name, premise, holds, about, (gate, *states), {"gate": 1.0})


def rare_filler() -> World:
    fork = (0.48, 0.42, 0.05, 0.03, 0.02)
    return World(
        "rare_filler", RARE, True,
        "The right token is a common one; the rare tokens, everywhere, make no difference.",
        (
            *fillers("before", [0.88], 5, "fork"),
            State("fork", fork, ("wrong1", "right1", "wrong1", "wrong1", "wrong1")),
            *fillers("right", [0.86, 0.90], 5, 1.0),
            *fillers("wrong", [0.87, 0.91], 5, 0.0),
        ),
        {"before1": 1.0},
    )  # fmt: skip


def rare_right() -> World:
    fork = (0.40, 0.30, 0.15, 0.10, 0.05)
    return World(
        "rare_right", RARE, False,
        "The right token has a probability of 0.05; the fillers have no rare tokens.",
        (
            State("before1", falling(0.24, 5, 0.9), ("fork",) * 5),
            State("fork", fork, (*["wrong1"] * 4, "right1")),
            State("right1", falling(0.25, 5, 0.88), ("right2",) * 5),
            State("right2", falling(0.26, 5, 0.86), (1.0,) * 5),
            State("wrong1", falling(0.27, 5, 0.84), ("wrong2",) * 5),
            State("wrong2", falling(0.28, 5, 0.82), (0.0,) * 5),
        ),
        {"before1": 1.0},
    )  # fmt: skip


def two_modes() -> World:
    return World(
        "two_modes", "the gradient of the reward keeps several right answers alive", False,
        "Two of four answers are right, one of them likelier than the other; then a filler.",
        (
            State("answer", (0.40, 0.30, 0.20, 0.10), ("wrong1", "right1", "wrong1", "right1")),
            *fillers("right", [0.60], 4, 1.0),
            *fillers("wrong", [0.50], 4, 0.0),
        ),
        {"answer": 1.0},
    )  # fmt: skip


def sparse_chain() -> World:
    lost = fillers("lost", [0.36, 0.37, 0.38], 3, 0.0)
    forks = [(f"fork{k}", f"fork{k + 1}" if k < 4 else 1.0, f"lost{k}" if k < 4 else 0.0) for k in range(1, 5)]
    return World(
        "sparse_chain", "a group of eight holds a right response", False,
        "Four decisions, each right with probability 1/3, and all must be right: most groups are all wrong.",
        (
            *(State(fork, (1 / 3, 0.34 + 0.01 * k, 2 / 3 - 0.34 - 0.01 * k), (right, wrong, wrong))
              for k, (fork, right, wrong) in enumerate(forks)),
            *lost,
        ),
        {"fork1": 1.0},
    )  # fmt: skip


def free_length() -> World:
    def ending(side: str, k: int, reward: float) -> State:
        more = 0.73 - 0.01 * k - (0.005 if side == "wrong" else 0.0)
        return State(f"{side}{k}", (more, 1 - more), (f"{side}{k + 1}" if k < 7 else reward, reward))

    sides = (("right", 1.0), ("wrong", 0.0))
    return World(
        "free_length", "length does not matter to what a token is worth", True,
        "The first token fixes the reward; then each token goes on or ends the response, after eight at the latest.",
        (
            State("answer", (0.3, 0.7), ("right1", "wrong1")),
            *(ending(side, k, reward) for side, reward in sides for k in range(1, 8)),
        ),
        {"answer": 1.0},
    )  # fmt: skip


def forks_between_sure() -> World:
    def fork(k: int, p: tuple[float, ...]) -> State:
        return State(f"fork{k}", p, (f"on{k}", f"off{k}", f"off{k}"))

    def forced(name: str, top: float, to: str | float) -> State:
        return State(name, falling(top, 3), (to,) * 3)

    return World(
        "forks_between_sure", "every token of a right response deserves its reward", False,
        "Three forks between forced tokens; all three must go right.",
        (
            fork(1, (0.50, 0.30, 0.20)), forced("on1", 0.95, "fork2"), forced("off1", 0.94, "stray2"),
            fork(2, (0.48, 0.32, 0.20)), forced("on2", 0.97, "fork3"), forced("off2", 0.96, "stray3"),
            fork(3, (0.46, 0.34, 0.20)), forced("on3", 0.99, 1.0), forced("off3", 0.98, 0.0),
            State("stray2", (0.45, 0.35, 0.20), ("off2",) * 3), State("stray3", (0.44, 0.36, 0.20), ("off3",) * 3),
        ),
        {"fork1": 1.0},
    )  # fmt: skip


def easy_and_hard() -> World:
    return World(
        "easy_and_hard", "prompts of all difficulties weigh the same in the gradient", False,
        "Two prompts: one is answered right with probability 0.9, the other with 0.07.",
        (
            State("easy", (0.90, 0.06, 0.04), ("easyright1", "easywrong1", "easywrong1")),
            *fillers("easyright", [0.50, 0.62], 3, 1.0),
            *fillers("easywrong", [0.52, 0.64], 3, 0.0),
            State("hard", (0.07, 0.53, 0.40), ("hardright1", "hardwrong1", "hardwrong1")),
            *fillers("hardright", [0.54, 0.66], 3, 1.0),
            *fillers("hardwrong", [0.56, 0.68], 3, 0.0),
        ),
        {"easy": 0.5, "hard": 0.5},
    )  # fmt: skip


def lucky_guess() -> World:
    return World(
        "lucky_guess", "a right answer shows that the response was right", False,
        "The first token reasons or guesses. Two steps of reasoning succeed with probability 0.8 and 0.85; one guess "
        "in four is right.",
        (
            State("start", (0.30, 0.32, 0.22, 0.16), ("reason1", "guess", "guess", "guess")),
            State("reason1", (0.80, 0.10, 0.06, 0.04), ("reason2", "slip", "slip", "slip")),
            State("reason2", (0.85, 0.07, 0.05, 0.03), (1.0, 0.0, 0.0, 0.0)),
            State("slip", (0.70, 0.16, 0.09, 0.05), (0.0,) * 4),
            State("guess", (0.25, 0.27, 0.26, 0.22), (1.0, 0.0, 0.0, 0.0)),
        ),
        {"start": 1.0},
        sound="reason1",
    )  # fmt: skip


def long_filler() -> World:
    """Position 8, 18 and 28 of 35 decide; from the first wrong one on, the response is lost."""
    on, lost = between(0.35, 0.95, 32), between(0.37, 0.97, 27)
    states, forks = [], (7, 17, 27)
    sure, open_ = iter(on), iter(lost)
    for k in range(35):
        follow, astray = (f"at{k + 1}", f"lost{k + 1}") if k < 34 else (1.0, 0.0)
        if k in forks:
            states.append(State(f"at{k}", falling(0.45, 8), (follow, *[astray] * 7)))
        else:
            states.append(State(f"at{k}", falling(next(sure), 8), (follow,) * 8))
        if k > forks[0]:
            states.append(State(f"lost{k}", falling(next(open_), 8), (astray,) * 8))
    return World(
        "long_filler", ENTROPY, False, "35 tokens, of which three decide, among fillers of every certainty.",
        tuple(states), {"at0": 1.0},
    )  # fmt: skip


def wide() -> World:
    """Of 40 tokens with falling probabilities the 5th, 10th, 20th and 35th are right."""
    fork = falling(0.2, 40, 0.9)
    right = (4, 9, 19, 34)
    return World(
        "wide", RARE, False, "40 tokens; in the third place four of them are right, most of them rare.",
        (
            *fillers("before", [0.30, 0.60], 40, "fork"),
            State("fork", fork, tuple("right1" if token in right else "wrong1" for token in range(40))),
            *fillers("right", [0.35, 0.55, 0.75], 40, 1.0),
            *fillers("wrong", [0.40, 0.65, 0.80], 40, 0.0),
        ),
        {"before1": 1.0},
    )  # fmt: skip


def paraphrases() -> World:
    """Five ways to say each of three things, three times; how it was said leads to a filler of its own."""
    sure, alike = iter(between(0.3, 0.9, 75)), iter(between(0.30, 0.35, 5))
    states: list[State] = []
    for turn in range(3):
        follow, astray = (f"turn{turn + 1}", f"lost{turn + 1}") if turn < 2 else (1.0, 0.0)
        for name, after in ((f"turn{turn}", follow), (f"lost{turn}", astray))[: 2 if turn else 1]:
            ways = falling(next(alike), 5, 0.8)
            p = tuple(share * x for share in (0.4, 0.35, 0.25) for x in ways)
            states.append(State(name, p, tuple(f"{name}said{token}" for token in range(15))))
            states += [
                State(f"{name}said{token}", falling(next(sure), 15), (after if token < 5 else astray,) * 15)
                for token in range(15)
            ]
    return World(
        "paraphrases", "siblings that share a prefix tell what a token is worth", False,
        "Three choices, each said in one of five ways; the same choice is seldom reached by the same words.",
        tuple(states), {"turn0": 1.0},
    )  # fmt: skip


def many_prompts() -> World:
    """Seventeen states a prompt: four fillers, a fork, six fillers on either side."""
    sure, states = iter(between(0.35, 0.95, 96)), []
    shares = (0.04, 0.15, 0.35, 0.60, 0.85, 0.96)
    for k, right in enumerate(shares):
        before, on, lost = (
            fillers(f"{side}{k}at", [next(sure) for _ in range(count)], 10, to)
            for side, count, to in (("before", 4, f"fork{k}"), ("right", 6, 1.0), ("wrong", 6, 0.0))
        )
        states += [*before, State(f"fork{k}", falling(right, 10), (on[0].name, *[lost[0].name] * 9)), *on, *lost]
    return World(
        "many_prompts", "prompts of all difficulties weigh the same in the gradient", False,
        "Six prompts, answered right with 0.04 to 0.96; eleven tokens, of which the fifth decides.",
        tuple(states), {f"before{k}at1": 1 / len(shares) for k in range(len(shares))},
    )  # fmt: skip


def hard_prompts() -> World:
    """Two forks between three chains of five fillers; both must go right."""
    sure, states = iter(between(0.30, 0.97, 125)), []
    shares = (0.02, 0.10, 0.30, 0.70, 0.97)
    for k, right in enumerate(shares):
        chains = {
            name: fillers(f"{name}{k}at", [next(sure) for _ in range(5)], 8, to)
            for name, to in (
                ("last", 1.0), ("lostlast", 0.0), ("middle", f"second{k}"), ("lost", f"lostlast{k}at1"),
                ("before", f"first{k}"),
            )
        }  # fmt: skip
        p, q = falling(right**0.5, 8, 0.8), falling(right**0.5, 8, 0.7)
        states += [state for chain in chains.values() for state in chain]
        states += [
            State(f"first{k}", p, (f"middle{k}at1", *[f"lost{k}at1"] * 7)),
            State(f"second{k}", q, (f"last{k}at1", *[f"lostlast{k}at1"] * 7)),
        ]
    return World(
        "hard_prompts", "prompts of all difficulties weigh the same in the gradient", False,
        "Five prompts, answered right with 0.02 to 0.97; two of up to 17 tokens decide, and both must be right.",
        tuple(states), {f"before{k}at1": 1 / len(shares) for k in range(len(shares))},
    )  # fmt: skip


def long_paraphrases() -> World:
    """Two prompts; two choices, each said in one of four ways that lead through three fillers of their own."""
    sure, alike, states = iter(between(0.3, 0.9, 250)), iter(between(0.30, 0.36, 6)), []
    for k, good in enumerate((0.25, 0.55)):
        for name, follow, astray in (
            (f"turn{k}", f"then{k}", f"gone{k}"), (f"then{k}", f"right{k}at1", f"wrong{k}at1"),
            (f"gone{k}", f"wrong{k}at1", f"wrong{k}at1"),
        ):  # fmt: skip
            ways = falling(next(alike), 4, 0.8)
            p = tuple(share * x for share in (good, (1 - good) * 0.6, (1 - good) * 0.4) for x in ways)
            states.append(State(name, p, tuple(f"{name}way{way}at1" for way in range(12))))
            for way in range(12):
                to = follow if way < 4 else astray
                states += fillers(f"{name}way{way}at", [next(sure) for _ in range(3)], 12, to)
        for side, reward in (("right", 1.0), ("wrong", 0.0)):
            states += fillers(f"{side}{k}at", [next(sure) for _ in range(8)], 12, reward)
    return World(
        "long_paraphrases", "siblings that share a prefix tell what a token is worth", False,
        "Two prompts with two choices each, said in one of four ways and followed by fillers; 16 tokens.",
        tuple(states), {"turn0": 0.5, "turn1": 0.5},
    )  # fmt: skip


WORLDS: dict[str, Callable[[], World]] = {
    build.__name__: build
    for build in (
        fork_sure_filler, sure_fork_filler, wandering_fork, wandering_sure, rare_filler, rare_right, two_modes,
        sparse_chain, free_length, forks_between_sure, easy_and_hard, lucky_guess,
    )
}  # fmt: skip
LARGE: dict[str, Callable[[], World]] = {
    build.__name__: build for build in (long_filler, wide, paraphrases, many_prompts, hard_prompts, long_paraphrases)
}

"""The verifier `math`, started once."""

from collections.abc import Iterator

import pytest

from tokenpo.train.tasks.verify import Verifier, VerifierOptions, make_verifier


@pytest.fixture(scope="session")
def math() -> Iterator[Verifier]:
    verifier = make_verifier("math", VerifierOptions(verifier_seconds=20, verifier_workers=1), "t")
    yield verifier
    verifier.close()

"""The decorator that makes a builder a published method, and names its paper."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec

from ..base.errors import OutOfRange
from ..core.objective import Objective
from .signature import check_options, documented

P = ParamSpec("P")

# Framework files in which many methods were read.
VERL = "verl 0.9.1:verl/trainer/ppo/core_algos.py"
TRL = "trl 1.16.0:trl/trainer/grpo_trainer.py"


@dataclass(frozen=True)
class Paper:
    """The source of a method, put above its builder: `@Paper("DAPO", "2503.14476", "paper")`.

    Args:
        title: short title.
        arxiv: identifier, or the address of a source that has none.
        provenance: "paper" read in its text, "code" read in the authors' or a framework's code, "second-hand" told by
            others, "reconstructed" inferred by us because the body could not be read, "own" our own composition,
            whose idea the title and the identifier name.
        note: what the provenance leaves open.
        code: what was read, of provenance "code": OWNER/REPOSITORY@COMMIT:FILE, or PACKAGE VERSION:FILE for a published
            package; several are divided by "; ".
        version: the version the formulas belong to, "" where one text serves all.
        later: (version, identifier) of a version that appeared under an identifier of its own.
        about: what its methods share: formula, defaults, departures. It stands in the docstring of each.
    """

    title: str
    arxiv: str
    provenance: Literal["paper", "code", "second-hand", "reconstructed", "second-hand + reconstructed", "own"]
    note: str = ""
    code: str = ""
    version: str = ""
    later: tuple[str, str] | None = None
    about: str = ""

    @property
    def reference(self) -> str:
        if not self.arxiv[0].isdigit():
            return f"https://{self.arxiv}"
        later = "; {} is {}".format(*self.later) if self.later else ""
        return f"arXiv:{self.arxiv}{' ' + self.version if self.version else ''}{later}"

    def __call__(self, build: Callable[P, Objective]) -> Callable[P, Objective]:
        """The builder as a method: it checks its options, gives its objective its own name and carries this paper.

        Where a part raises OutOfRange, for example for two inconsistent numbers, the error names the method.
        """
        name = build.__name__

        @functools.wraps(build)
        def checked(*args: P.args, **options: P.kwargs) -> Objective:
            check_options(name, options, build)
            try:
                objective = build(*args, **options)
            except OutOfRange as error:
                if error.owner == name:
                    raise
                raise OutOfRange(name, f"{error.name} of {error.owner}", error.value, error.expected) from error
            return dataclasses.replace(objective, name=name) if isinstance(objective, Objective) else objective

        checked.paper = self  # type: ignore[attr-defined]
        checked.__doc__ = documented(build, self.about)
        return checked

"""Every method from its paper, in NumPy float64 on the prelude, which alone they import: loss and gradient by hand."""

from . import credit, entropy, surrogates, teachers, token_credit, weights

ORACLES = {
    name: oracle
    for module in (surrogates, credit, token_credit, weights, entropy, teachers)
    for name, oracle in vars(module).items()
    if hasattr(oracle, "cases")
}
"""Each by the name of its method, with the options `cases` that it is compared with."""

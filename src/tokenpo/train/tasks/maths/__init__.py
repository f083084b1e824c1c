"""The verifier `math`: math-verify compares values; this package reads the text around them.

    equal        compares an answer with the references (called in a worker process); finds unmarked answers
    echo         finds an answer in its question
    spelling     rewrites an answer into one spelling of LaTeX, step by step
    reading      parses lists, sets, tuples, intervals and names
    units        reads units, money and percent around a number
    engine       compares two formulas by math-verify, and says which formulas it can read

They run in a process that can be killed, and import nothing else of this package. docs/tasks.md has the conventions.
"""

"""The verifier `math`: math-verify compares values, and what stands around a value is read here.

    equal        whether an answer is one of the references, what a verifier process calls; answers that nothing marks
    spelling     an answer in one spelling of LaTeX, step by step
    reading      what an answer is made of: lists, sets, tuples, intervals, names
    units        what may stand around a number: units, money, percent
    engine       whether two formulas are equal, by math-verify, and what they may consist of

They run in a process that can be killed, and import nothing else of this package. docs/tasks.md has the conventions.
"""

"""The verifier `math`: math-verify compares values, and what stands around a value is read here.

    conventions  what counts as the same answer, in words
    equal        whether an answer is one of the references: what a verifier process calls
    prose        the answer in a text that marks none
    spelling     an answer in one spelling of LaTeX, step by step; `characters` has the tables
    reading      what an answer is made of: lists, sets, tuples, intervals, names; `brackets` takes texts apart
    units        what may stand around a number: units, money, percent
    engine       whether two formulas are equal, by math-verify, and what they may consist of

All but `conventions` run in a process that can be killed, and import nothing else of this package.
"""

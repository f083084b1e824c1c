"""The verifier `math`: math-verify compares values, and what stands around a value is read here.

    spelling   an answer in one spelling of LaTeX: characters, blanks, styles
    prose      the answer in a text that marks none
    units      what may follow a number: units, money, percent
    reading    what an answer is made of: lists, sets, tuples, intervals, names, numbers in a base
    engine     whether two formulas are equal, by math-verify and SymPy, and what they may consist of
    equal      the whole of it, called in a verifier process
    conventions  what counts as the same answer, in words

All but `conventions` run in a process that can be killed, and import nothing else of this package.
"""

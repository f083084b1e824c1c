"""Trains one recipe with several methods and seeds, or takes runs that exist, and tests what the seeds tell apart.

`plan` names the runs, or reads those of any engine, and `runs` makes them. `measures` takes a number from a run,
`paired` tests differences, `verdict` words them and `result` gathers it; `table` and `page` show it.
"""

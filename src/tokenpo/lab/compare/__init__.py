"""Trains one recipe with several methods and seeds, or takes existing runs, and tests the differences over seeds.

`plan` lists the runs and `runs` trains them; `existing` reads those that exist, of any host. `measures` takes a number
from a run, `paired` tests differences, `verdict` words them, `result` collects everything, `table` and `page` show it.
"""

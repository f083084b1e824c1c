"""Trains one recipe with several methods and seeds, or takes existing runs, and tests the differences over seeds.

`plan` lists the runs, or reads those that exist; `runs` trains them. `measures` takes a number from a run, `verdict`
tests differences, `result` collects everything, `page` shows it.
"""

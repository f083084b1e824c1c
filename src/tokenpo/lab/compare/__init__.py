"""Trains one recipe with several methods and seeds, or takes existing runs, and tests the differences over seeds.

`plan` lists the runs, or reads existing ones of any engine, and `runs` trains them. `measures` takes a number from a
run, `paired` tests differences, `verdict` words them, `result` collects everything, `table` and `page` show it.
"""

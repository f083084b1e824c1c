"""Trains one recipe with several methods and seeds, or takes existing runs, and tests the differences over seeds.

`plan` lists the runs, or reads those that exist, and trains them. `result` takes numbers from them, `verdict` tests
differences, `page` shows everything.
"""

"""Runs one recipe with several methods and seeds, and says what the seeds tell apart.

`plan` which runs, `runs` their processes, `measures` the numbers of a run, `paired` the statistics, `verdict` what they
say; `table`, `page` and compare.json show it. Importing this package imports nothing heavy.
"""
